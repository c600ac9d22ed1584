package passes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// The names of the key sets. A secret of that name contains the private keys, and an object the public ones. Each
// purpose has its own set, so that a program needs only the secrets of the tokens that it signs.
const (
	PassKeys   = "keys/passes"
	AgentKeys  = "keys/agents"
	TunnelKeys = "keys/tunnel"
)

const (
	// keyLife is the age at which a new key replaces a signing key. It is checked when a token is signed.
	keyLife = 30 * 24 * time.Hour
	// activationDelay is how long a new key only verifies. Afterwards all gateways, and other readers of the JWKS, have
	// read it.
	activationDelay = time.Minute
	// verifyPeriod is how long a replaced key still verifies. Afterwards all of its tokens have expired.
	verifyPeriod = activationDelay + MaxTTL + clockSkew
	// attempts bounds the retries of a write after conflicts.
	attempts = 5
)

// signingKey is one private key of the secret store.
type signingKey struct {
	Created time.Time       `json:"created"`
	Key     jose.JSONWebKey `json:"key"`
}

// keySet is the value of a key set's secret: its private keys, oldest first.
type keySet struct {
	Keys []signingKey `json:"keys"`
}

func parseKeys(name string, v secrets.Value) (*keySet, error) {
	s := &keySet{}
	if err := json.Unmarshal(v.Reveal(), s); err != nil {
		return nil, fmt.Errorf("secret %s contains no set of keys", name) // the parser's error could quote it
	}
	for _, k := range s.Keys {
		if _, ok := k.Key.Key.(*ecdsa.PrivateKey); !ok || k.Key.KeyID == "" {
			return nil, fmt.Errorf("secret %s contains a key that cannot sign", name)
		}
	}
	return s, nil
}

func (s *keySet) value() (secrets.Value, error) {
	data, err := json.Marshal(s)
	return secrets.NewValue(data), err
}

// add appends a new key, and removes keys whose tokens have all expired.
func (s *keySet) add(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	s.Keys = append(s.Keys,
		signingKey{now, jose.JSONWebKey{Key: key, KeyID: uuid.NewString(), Algorithm: string(jose.ES256), Use: "sig"}})
	done := 0
	for done+1 < len(s.Keys) && now.Sub(s.Keys[done+1].Created) > verifyPeriod {
		done++
	}
	s.Keys = slices.Delete(s.Keys, 0, done)
	return nil
}

// renew adds a key if there is none that is younger than keyLife, and reports whether it did.
func (s *keySet) renew(now time.Time) (bool, error) {
	if n := len(s.Keys); n > 0 && now.Sub(s.Keys[n-1].Created) < keyLife {
		return false, nil
	}
	return true, s.add(now)
}

// signer returns the newest key that all gateways have read. If all keys are too new, it returns the oldest.
func (s *keySet) signer(now time.Time) signingKey {
	for _, k := range slices.Backward(s.Keys) {
		if now.Sub(k.Created) >= activationDelay {
			return k
		}
	}
	return s.Keys[0]
}

// has reports whether the set contains the key with that id.
func (s *keySet) has(id string) bool {
	return slices.ContainsFunc(s.Keys, func(k signingKey) bool { return k.Key.KeyID == id })
}

// readKeys returns the private keys of a set. Without a secret it returns an empty set and the version "".
func readKeys(ctx context.Context, store secrets.Store, name string) (keys *keySet, version string, err error) {
	old, err := store.Get(ctx, name)
	if errors.Is(err, secrets.ErrNotFound) {
		return &keySet{}, "", nil
	} else if err != nil {
		return nil, "", err
	}
	keys, err = parseKeys(name, old.Value)
	return keys, old.Version, err
}

// changeKeys reads the keys of a set, lets edit change them, and stores them if edit reports a change. After a conflict
// it starts again.
func changeKeys(
	ctx context.Context, store secrets.Store, name string, edit func(*keySet) (changed bool, err error),
) (*keySet, error) {
	for range attempts {
		set, version, err := readKeys(ctx, store, name)
		if err != nil {
			return nil, err
		}
		changed, err := edit(set)
		if err != nil || !changed {
			return set, err
		}
		value, err := set.value()
		if err != nil {
			return nil, err
		}
		if version == "" {
			_, err = store.Create(ctx, name, value, nil)
		} else {
			_, err = store.Replace(ctx, name, version, value)
		}
		if !errors.Is(err, secrets.ErrConflict) && !errors.Is(err, secrets.ErrExists) {
			return set, err
		}
	}
	return nil, fmt.Errorf("secret %s: %w", name, secrets.ErrConflict)
}
