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

// KeysSecret names the secret with the keys that sign tokens.
const KeysSecret = "keys/passes"

const (
	// keyLife is how old a key may be that signs. The next token gets a new one.
	keyLife = 30 * 24 * time.Hour
	// settle is how long a new key only verifies, until every gateway and whoever else reads the JWKS has it.
	settle = time.Minute
	// attempts bounds how often a change is made again because of another writer's.
	attempts = 5
)

// signingKey is one key, private in the secret store and public in the JWKS.
type signingKey struct {
	Created time.Time       `json:"created"`
	Key     jose.JSONWebKey `json:"key"`
}

// keySet is the value of KeysSecret: several keys, oldest first, so that tokens of the old one hold while a new one takes over.
type keySet struct {
	Keys []signingKey `json:"keys"`
}

func parseKeys(v secrets.Value) (*keySet, error) {
	s := &keySet{}
	if err := json.Unmarshal(v.Reveal(), s); err != nil {
		return nil, fmt.Errorf("secret %s holds no set of keys", KeysSecret) // the parser's error could quote it
	}
	for _, k := range s.Keys {
		if _, ok := k.Key.Key.(*ecdsa.PrivateKey); !ok || k.Key.KeyID == "" {
			return nil, fmt.Errorf("secret %s holds a key that cannot sign", KeysSecret)
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
	for done+1 < len(s.Keys) && now.Sub(s.Keys[done+1].Created) > settle+MaxTTL+skew {
		done++
	}
	s.Keys = slices.Delete(s.Keys, 0, done)
	return nil
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

// public returns the keys for verifying.
func (s *keySet) public() jose.JSONWebKeySet {
	out := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range s.Keys {
		out.Keys = append(out.Keys, k.Key.Public())
	}
	return out
}

// change reads the keys, has edit change them, and stores them if it says so. A change of another writer makes it begin again.
func changeKeys(ctx context.Context, store secrets.Store, edit func(*keySet) (changed bool, err error)) (*keySet, error) {
	for range attempts {
		set := &keySet{}
		old, err := store.Get(ctx, KeysSecret)
		missing := errors.Is(err, secrets.ErrNotFound)
		if err == nil {
			set, err = parseKeys(old.Value)
		}
		if err != nil && !missing {
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
		if missing {
			_, err = store.Create(ctx, KeysSecret, value, nil)
		} else {
			_, err = store.Replace(ctx, KeysSecret, old.Version, value)
		}
		if !errors.Is(err, secrets.ErrConflict) && !errors.Is(err, secrets.ErrExists) {
			return set, err
		}
	}
	return nil, fmt.Errorf("secret %s: %w", KeysSecret, secrets.ErrConflict)
}
