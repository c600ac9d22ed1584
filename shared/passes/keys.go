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

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// The names of the key sets: of the secrets with private keys, and of the objects with public keys. Each purpose has
// its own set, so that a program needs only the secrets of the tokens that it signs.
const (
	PassKeys   = v1alpha1.KeyPrefix + "passes"
	AgentKeys  = v1alpha1.KeyPrefix + "agents"
	TunnelKeys = v1alpha1.KeyPrefix + "tunnel"
)

const (
	// keyLife is the age at which a new key replaces a signing key.
	keyLife = 30 * 24 * time.Hour
	// activationDelay is how long a new key only verifies, until all gateways and readers of the JWKS have read it.
	activationDelay = time.Minute
	// verifyPeriod is how long a replaced key still verifies. Afterwards all of its tokens have expired.
	verifyPeriod = activationDelay + MaxTTL + clockSkew
	attempts     = 5
)

type signingKey struct {
	Created time.Time       `json:"created"`
	Key     jose.JSONWebKey `json:"key"`
}

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

// renew adds a key unless one is younger than keyLife. It reports whether it did.
func (s *keySet) renew(now time.Time) (bool, error) {
	if n := len(s.Keys); n > 0 && now.Sub(s.Keys[n-1].Created) < keyLife {
		return false, nil
	}
	return true, s.add(now)
}

// signingKeyAt returns the newest key that all gateways have read. If all keys are too new, it returns the oldest.
func (s *keySet) signingKeyAt(now time.Time) signingKey {
	for _, k := range slices.Backward(s.Keys) {
		if now.Sub(k.Created) >= activationDelay {
			return k
		}
	}
	return s.Keys[0]
}

func (s *keySet) has(id string) bool {
	return slices.ContainsFunc(s.Keys, func(k signingKey) bool { return k.Key.KeyID == id })
}

// readKeys returns an empty set and the version "" if there is no secret.
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

// changeKeys stores the keys of a set after edit reports a change. After a conflict it calls edit again.
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
