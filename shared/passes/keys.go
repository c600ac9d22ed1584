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

// Sets of keys. Each name is that of a secret with private keys, and of an object with the public ones. A key of one
// set cannot sign for another purpose, so that a program reads only the secrets of its own tokens.
const (
	PassKeys   = "keys/passes"
	AgentKeys  = "keys/agents"
	TunnelKeys = "keys/tunnel"
)

const (
	// keyLife is how old a key may be that signs. The next token gets a new one.
	keyLife = 30 * 24 * time.Hour
	// settle is how long a new key only verifies, until every gateway and whoever else reads the JWKS has it.
	settle = time.Minute
	// useful is how long a key verifies after it has ceased to sign: until all that it signed has ended.
	useful = settle + MaxTTL + skew
	// attempts bounds how often a change is made again because of another writer's.
	attempts = 5
)

// signingKey is one private key of the secret store.
type signingKey struct {
	Created time.Time       `json:"created"`
	Key     jose.JSONWebKey `json:"key"`
}

// keySet is the value of a set's secret: several keys, oldest first. Tokens of the old one stay good after a new one.
type keySet struct {
	Keys []signingKey `json:"keys"`
}

func parseKeys(name string, v secrets.Value) (*keySet, error) {
	s := &keySet{}
	if err := json.Unmarshal(v.Reveal(), s); err != nil {
		return nil, fmt.Errorf("secret %s holds no set of keys", name) // the parser's error could quote it
	}
	for _, k := range s.Keys {
		if _, ok := k.Key.Key.(*ecdsa.PrivateKey); !ok || k.Key.KeyID == "" {
			return nil, fmt.Errorf("secret %s holds a key that cannot sign", name)
		}
	}
	return s, nil
}

func (s *keySet) value() (secrets.Value, error) {
	data, err := json.Marshal(s)
	return secrets.NewValue(data), err
}

// add makes a new key, and drops those that signed nothing which may still be good.
func (s *keySet) add(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	s.Keys = append(s.Keys, signingKey{now, jose.JSONWebKey{Key: key, KeyID: uuid.NewString(), Algorithm: string(jose.ES256), Use: "sig"}})
	done := 0
	for done+1 < len(s.Keys) && now.Sub(s.Keys[done+1].Created) > useful {
		done++
	}
	s.Keys = slices.Delete(s.Keys, 0, done)
	return nil
}

// renew adds a key if there is none, or if the newest is too old, and reports whether it did.
func (s *keySet) renew(now time.Time) (bool, error) {
	if n := len(s.Keys); n > 0 && now.Sub(s.Keys[n-1].Created) < keyLife {
		return false, nil
	}
	return true, s.add(now)
}

// signer is the newest key that everybody knows of.
func (s *keySet) signer(now time.Time) signingKey {
	for _, k := range slices.Backward(s.Keys) {
		if now.Sub(k.Created) >= settle {
			return k
		}
	}
	return s.Keys[0]
}

// has reports whether the set has the key of that id.
func (s *keySet) has(id string) bool {
	return slices.ContainsFunc(s.Keys, func(k signingKey) bool { return k.Key.KeyID == id })
}

// readKeys returns the private keys of a set, none where there is no secret. version is "" then.
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

// changeKeys reads the keys of a set, has edit change them, and stores them if it reports a change. A change of
// another writer makes it begin again.
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
