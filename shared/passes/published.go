package passes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/clusterpass/clusterpass/shared/objects"
)

type publishedKeys struct {
	// Signer is the name of the Signer's key that signs. "" means that the keys of the secret store sign.
	Signer string         `json:"signer,omitempty"`
	Keys   []publishedKey `json:"keys"`
}

type publishedKey struct {
	Key jose.JSONWebKey `json:"key"`
	// Retired is the time at which another key replaced this key. The key still verifies for verifyPeriod. Retired stays
	// nil if both keys are of the secret store. The key then verifies until it is removed from the secret, and
	// syncWithSecret removes it here.
	Retired *time.Time `json:"retired,omitempty"`
}

// parsePublished decodes the object with that name. It refuses any key that is not a public ES256 key with an id.
func parsePublished(name string, value []byte) (*publishedKeys, error) {
	p := &publishedKeys{}
	if err := json.Unmarshal(value, p); err != nil {
		return nil, fmt.Errorf("object %s contains no set of keys", name)
	}
	for _, k := range p.Keys {
		if public, ok := k.Key.Key.(*ecdsa.PublicKey); !ok || public.Curve != elliptic.P256() || k.Key.KeyID == "" {
			return nil, fmt.Errorf("object %s contains a key that is not a public ES256 key with an id", name)
		}
	}
	return p, nil
}

func (k *publishedKey) isValid(now time.Time) bool {
	return k.Retired == nil || now.Sub(*k.Retired) < verifyPeriod
}

// find returns the key with that id if the key may still verify at the time now.
func (p *publishedKeys) find(id string, now time.Time) (jose.JSONWebKey, bool) {
	i := slices.IndexFunc(p.Keys, func(k publishedKey) bool { return k.Key.KeyID == id && k.isValid(now) })
	if i < 0 {
		return jose.JSONWebKey{}, false
	}
	return p.Keys[i].Key, true
}

func (p *publishedKeys) public(now time.Time) jose.JSONWebKeySet {
	out := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range p.Keys {
		if k.isValid(now) {
			out.Keys = append(out.Keys, k.Key)
		}
	}
	return out
}

// syncWithSecret replaces the keys of p by the public keys of the secret. Retired keys stay until they no longer
// verify.
func (p *publishedKeys) syncWithSecret(secret *keySet, now time.Time) (changed bool) {
	before := len(p.Keys)
	p.Keys = slices.DeleteFunc(p.Keys, func(k publishedKey) bool {
		return !k.isValid(now) || k.Retired == nil && !secret.has(k.Key.KeyID)
	})
	changed = len(p.Keys) != before
	for _, k := range secret.Keys {
		i := slices.IndexFunc(p.Keys, func(old publishedKey) bool { return old.Key.KeyID == k.Key.KeyID })
		switch {
		case i < 0:
			p.Keys = append(p.Keys, publishedKey{Key: k.Key.Public()})
		case p.Keys[i].Retired != nil:
			p.Keys[i].Retired = nil
		default:
			continue
		}
		changed = true
	}
	return changed
}

// syncWithSigner adds the Signer's key, and retires all others.
func (p *publishedKeys) syncWithSigner(name string, key jose.JSONWebKey, now time.Time) (changed bool) {
	before := len(p.Keys)
	p.Keys = slices.DeleteFunc(p.Keys, func(k publishedKey) bool { return !k.isValid(now) })
	changed = len(p.Keys) != before || p.Signer != name
	p.Signer = name
	found := false
	for i := range p.Keys {
		k := &p.Keys[i]
		own := k.Key.KeyID == key.KeyID
		found = found || own
		switch {
		case own && k.Retired != nil:
			k.Retired, changed = nil, true
		case !own && k.Retired == nil:
			k.Retired, changed = &now, true
		}
	}
	if !found {
		p.Keys, changed = append(p.Keys, publishedKey{Key: key}), true
	}
	return changed
}

// republish stores the object of a set if edit reports a change, or if there was no object. After a conflict it calls
// edit again. edit reads the secret store after the object, so that an old secret never replaces newer published keys.
func (i *Issuer) republish(
	ctx context.Context, name string, edit func(*publishedKeys) (changed bool, err error),
) error {
	for range attempts {
		p := &publishedKeys{}
		old, err := i.Objects.Get(ctx, name)
		missing := errors.Is(err, objects.ErrNotFound)
		if err == nil {
			p, err = parsePublished(name, old.Value)
		}
		if err != nil && !missing {
			return err
		}
		changed, err := edit(p)
		if err != nil || !changed && !missing {
			return err
		}
		value, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if missing {
			_, err = i.Objects.Create(ctx, name, value)
		} else {
			_, err = i.Objects.Update(ctx, name, value, old.Revision)
		}
		raced := errors.Is(err, objects.ErrConflict) || errors.Is(err, objects.ErrExists) ||
			errors.Is(err, objects.ErrNotFound)
		if !raced {
			return err
		}
	}
	return fmt.Errorf("object %s: %w", name, objects.ErrConflict)
}

// SignerOf returns the name of the Signer's key that signs passes, from the value of the object PassKeys. It returns ""
// if keys of the secret store sign, or if the value cannot be decoded.
func SignerOf(value []byte) string {
	var p struct {
		Signer string `json:"signer"`
	}
	_ = json.Unmarshal(value, &p)
	return p.Signer
}
