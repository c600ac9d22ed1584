// Package keys stores the keys of recordings: private keys in the secret store, public keys in the object store.
//
//   - The keys only sign recordings. No pass, agent or tunnel is verified with them, and they are of another algorithm.
//   - The newest private key signs. Published keys verify for ever, because recordings are kept for years.
package keys

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Name is the name of the secret with the private keys, and of the object with the public keys.
const Name = v1alpha1.KeyPrefix + "recordings"

const attempts = 5

// keySet is the value of the secret and of the object. The newest key is the last.
type keySet struct {
	Keys []key `json:"keys"`
}

type key struct {
	Created time.Time       `json:"created"`
	Key     jose.JSONWebKey `json:"key"`
}

// Ensure returns a Signer with the newest private key. It creates a missing key, and publishes the public keys before
// it returns. Programs that start at once get the same key.
func Ensure(ctx context.Context, sec secrets.Store, obj objects.Store) (*recording.Signer, error) {
	set, _, err := ensureSecret(ctx, sec)
	if err != nil {
		return nil, fmt.Errorf("get the key of recordings: %w", err)
	}
	if err := publish(ctx, obj, set); err != nil {
		return nil, fmt.Errorf("publish the key of recordings: %w", err)
	}
	private, ok := set.Keys[len(set.Keys)-1].Key.Key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("get the key of recordings: secret %s contains a key that cannot sign", Name)
	}
	return recording.NewSigner(private)
}

// Rotate replaces the private key, and publishes the public keys of the old and the new one. Programs sign with the new
// key after their next Ensure. It returns the recording.KeyID of the new key.
func Rotate(ctx context.Context, sec secrets.Store, obj objects.Store) (keyID string, err error) {
	old, version, err := ensureSecret(ctx, sec)
	if err == nil {
		err = publish(ctx, obj, old) // the secret loses the old key
	}
	if err != nil {
		return "", fmt.Errorf("rotate the key of recordings: %w", err)
	}
	value, set, err := newSecret()
	if err == nil {
		_, err = sec.Replace(ctx, Name, version, value)
	}
	if err == nil {
		err = publish(ctx, obj, set)
	}
	if err != nil {
		return "", fmt.Errorf("rotate the key of recordings: %w", err)
	}
	return set.Keys[0].Key.KeyID, nil
}

func ensureSecret(ctx context.Context, store secrets.Store) (set *keySet, version string, err error) {
	stored, err := store.Get(ctx, Name)
	if errors.Is(err, secrets.ErrNotFound) {
		if err := createSecret(ctx, store); err != nil {
			return nil, "", err
		}
		stored, err = store.Get(ctx, Name)
	}
	if err != nil {
		return nil, "", err
	}
	set = &keySet{}
	if json.Unmarshal(stored.Value.Reveal(), set) != nil || len(set.Keys) == 0 { // the error could quote the key
		return nil, "", fmt.Errorf("secret %s contains no set of keys", Name)
	}
	for _, k := range set.Keys {
		if private, ok := k.Key.Key.(ed25519.PrivateKey); !ok || len(private) != ed25519.PrivateKeySize {
			return nil, "", fmt.Errorf("secret %s contains a key that cannot sign", Name)
		}
	}
	return set, stored.Version, nil
}

func createSecret(ctx context.Context, store secrets.Store) error {
	value, _, err := newSecret()
	if err != nil {
		return err
	}
	_, err = store.Create(ctx, Name, value, nil)
	if errors.Is(err, secrets.ErrExists) {
		return nil // another program started at once
	}
	return err
}

// newSecret returns the secret with a new key.
func newSecret() (secrets.Value, *keySet, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return secrets.Value{}, nil, err
	}
	set := &keySet{[]key{{time.Now().UTC().Truncate(time.Second), jose.JSONWebKey{
		Key: private, KeyID: recording.KeyID(public), Algorithm: string(jose.EdDSA), Use: "sig",
	}}}}
	value, err := json.Marshal(set)
	return secrets.NewValue(value), set, err
}

// publish adds the public keys of set to the object.
func publish(ctx context.Context, store objects.Store, set *keySet) error {
	for range attempts {
		published, revision, err := read(ctx, store)
		if err != nil {
			return err
		}
		if !published.add(set) {
			return nil
		}
		value, err := json.Marshal(published)
		if err != nil {
			return err
		}
		if revision == 0 {
			_, err = store.Create(ctx, Name, value)
		} else {
			_, err = store.Update(ctx, Name, value, revision)
		}
		raced := errors.Is(err, objects.ErrConflict) || errors.Is(err, objects.ErrExists) ||
			errors.Is(err, objects.ErrNotFound)
		if !raced {
			return err
		}
	}
	return fmt.Errorf("object %s: %w", Name, objects.ErrConflict)
}

// add adds the public keys of private ones. It reports whether it added any.
func (s *keySet) add(private *keySet) (added bool) {
	for _, k := range private.Keys {
		if !slices.ContainsFunc(s.Keys, func(old key) bool { return old.Key.KeyID == k.Key.KeyID }) {
			s.Keys, added = append(s.Keys, key{k.Created, k.Key.Public()}), true
		}
	}
	return added
}

// read returns the published keys, or an empty set with the revision 0.
func read(ctx context.Context, store objects.Getter) (set *keySet, revision uint64, err error) {
	o, err := store.Get(ctx, Name)
	if errors.Is(err, objects.ErrNotFound) {
		return &keySet{}, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	set = &keySet{}
	if err := json.Unmarshal(o.Value, set); err != nil {
		return nil, 0, fmt.Errorf("object %s contains no set of keys", Name)
	}
	for _, k := range set.Keys {
		if public, ok := k.Key.Key.(ed25519.PublicKey); !ok || len(public) != ed25519.PublicKeySize {
			return nil, 0, fmt.Errorf("object %s contains a key that verifies no recordings", Name)
		}
	}
	return set, o.Revision, nil
}

// Published returns the public keys that verify recordings, the newest last. There may be none.
func Published(ctx context.Context, store objects.Getter) ([]ed25519.PublicKey, error) {
	set, _, err := read(ctx, store)
	if err != nil {
		return nil, fmt.Errorf("read the keys that verify recordings: %w", err)
	}
	var keys []ed25519.PublicKey
	for _, k := range set.Keys {
		if public, ok := k.Key.Key.(ed25519.PublicKey); ok {
			keys = append(keys, public)
		}
	}
	return keys, nil
}
