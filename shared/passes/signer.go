package passes

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Signer signs passes with a key that never leaves its service, such as AWS KMS. It is safe for concurrent use.
type Signer interface {
	// Public returns the key's name, such as an ARN, and its public half, on P-256. If this program may not use the key,
	// the error wraps ErrNotSigner.
	Public(ctx context.Context) (name string, key *ecdsa.PublicKey, err error)
	// Sign returns the key's signature of a SHA-256 digest, in ASN.1 DER. Its errors are as those of Public.
	Sign(ctx context.Context, digest []byte) ([]byte, error)
}

// ErrNotSigner means that this program cannot sign passes, because only other programs may use the key.
var ErrNotSigner = errors.New("this program does not sign passes")

// signatureHalf is the length in bytes of r, and of s, in a signature of ES256.
const signatureHalf = 32

// remoteKey is the key of a Signer as a jose.OpaqueSigner. It signs one token, because it contains the context.
type remoteKey struct {
	ctx    context.Context //nolint:containedctx // jose.OpaqueSigner has none
	signer Signer
	key    jose.JSONWebKey
}

// Public implements jose.OpaqueSigner.
func (r *remoteKey) Public() *jose.JSONWebKey { return &r.key }

// Algs implements jose.OpaqueSigner.
func (r *remoteKey) Algs() []jose.SignatureAlgorithm { return []jose.SignatureAlgorithm{jose.ES256} }

// SignPayload implements jose.OpaqueSigner. JOSE writes the two numbers of a signature one after the other, without
// DER.
func (r *remoteKey) SignPayload(payload []byte, _ jose.SignatureAlgorithm) ([]byte, error) {
	digest := sha256.Sum256(payload)
	der, err := r.signer.Sign(r.ctx, digest[:])
	if err != nil {
		return nil, err
	}
	public, ok := r.key.Key.(*ecdsa.PublicKey)
	if !ok || !ecdsa.VerifyASN1(public, digest[:], der) {
		return nil, fmt.Errorf("sign a pass: the signature does not belong to the key %s", r.key.KeyID)
	}
	var numbers struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &numbers); err != nil {
		return nil, err
	}
	out := make([]byte, 2*signatureHalf) // both numbers fit, since the signature verifies
	numbers.R.FillBytes(out[:signatureHalf])
	numbers.S.FillBytes(out[signatureHalf:])
	return out, nil
}

// publicJWK returns the public key of a Signer as a JWK. Its id is the thumbprint of the key.
func publicJWK(key *ecdsa.PublicKey) (jose.JSONWebKey, error) {
	k := jose.JSONWebKey{Key: key, Algorithm: string(jose.ES256), Use: "sig"}
	thumbprint, err := k.Thumbprint(crypto.SHA256)
	k.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	return k, err
}

// signToken returns a token of kind k with registered and own claims. It sets the claims iss and nbf. The public half
// of its key is already published. A key of the secret store that is too old is replaced first.
func (i *Issuer) signToken(ctx context.Context, k kind, registered jwt.Claims, own any) (secrets.Value, error) {
	if i.URL == "" {
		return secrets.Value{}, errors.New("create a token: its issuer, the gateway's URL, is not configured; " +
			"set CLUSTERPASS_URL")
	}
	key, err := i.key(ctx, k.signedBy)
	if err != nil {
		return secrets.Value{}, fmt.Errorf("the key that signs a %s: %w", k.description, err)
	}
	registered.Issuer, registered.NotBefore = i.URL, registered.IssuedAt
	return serialize(key, k, registered, own)
}

// key returns the private key of a set that signs now: a remoteKey or a jose.JSONWebKey.
func (i *Issuer) key(ctx context.Context, set string) (any, error) {
	if set == PassKeys && i.Signer != nil {
		return i.publishSignerKey(ctx)
	}
	keys, err := i.renewKeys(ctx, set)
	if err != nil {
		return nil, err
	}
	return keys.signer(i.now()).Key, nil
}

// serialize returns a token that is signed with the key.
func serialize(key any, k kind, registered jwt.Claims, own any) (secrets.Value, error) {
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(k.typ))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
	if err != nil {
		return secrets.Value{}, err
	}
	token, err := jwt.Signed(signer).Claims(registered).Claims(own).Serialize()
	return secrets.NewValue([]byte(token)), err
}

// publishSignerKey publishes the public half of the Signer's key, retires all other keys of passes, and returns the
// Signer's key.
func (i *Issuer) publishSignerKey(ctx context.Context) (*remoteKey, error) {
	name, public, err := i.Signer.Public(ctx)
	if err != nil {
		return nil, err
	}
	key, err := publicJWK(public)
	if err != nil {
		return nil, err
	}
	now := i.now().UTC()
	err = i.republish(ctx, PassKeys, func(p *publishedKeys) (bool, error) {
		changed := false
		if p.Signer == "" { // the keys of the secret signed before
			keys, _, err := readKeys(ctx, i.Secrets, PassKeys)
			if err != nil {
				return false, err
			}
			changed = p.syncWithSecret(keys, now)
		}
		return p.syncWithSigner(name, key, now) || changed, nil
	})
	return &remoteKey{ctx, i.Signer, key}, err
}

// renewKeys publishes and returns the keys of a set's secret. It first adds a key if there is none that is younger than
// keyLife.
func (i *Issuer) renewKeys(ctx context.Context, set string) (keys *keySet, err error) {
	now := i.now()
	err = i.republish(ctx, set, func(p *publishedKeys) (bool, error) {
		if p.Signer != "" {
			const todo = "name it in CLUSTERPASS_PASS_KMS_KEY, or run clusterpass pass rotate-key"
			return false, fmt.Errorf("%w: the key %s signs them; %s", ErrNotSigner, p.Signer, todo)
		}
		var err error
		if keys, err = changeKeys(ctx, i.Secrets, set, func(s *keySet) (bool, error) { return s.renew(now) }); err != nil {
			return false, err
		}
		return p.syncWithSecret(keys, now), nil
	})
	return keys, err
}

// publishSecretKeys publishes the keys of a set's secret. It creates no key. Without a secret it publishes an empty set
// if always is true, and otherwise does nothing.
func (i *Issuer) publishSecretKeys(ctx context.Context, set string, always bool) error {
	if !always {
		if _, version, err := readKeys(ctx, i.Secrets, set); err != nil || version == "" {
			return err
		}
	}
	return i.republish(ctx, set, func(p *publishedKeys) (bool, error) {
		if p.Signer != "" {
			return false, nil
		}
		keys, _, err := readKeys(ctx, i.Secrets, set)
		if err != nil {
			return false, err
		}
		return p.syncWithSecret(keys, i.now()), nil
	})
}

// Publish publishes the keys that verify passes. Programs that sign passes call it when they start, because earlier
// versions stored keys in the secret store only.
func (i *Issuer) Publish(ctx context.Context) error {
	if i.Signer != nil {
		if _, err := i.publishSignerKey(ctx); !errors.Is(err, ErrNotSigner) {
			return err
		}
	}
	return i.publishSecretKeys(ctx, PassKeys, true)
}

// PublishAll publishes the keys of all sets. If a cluster has agents, it also renews the keys of agents and of the
// tunnel port. So verifiers read a new key before it signs.
func (i *Issuer) PublishAll(ctx context.Context) error {
	enrolled, err := i.Objects.List(ctx, v1alpha1.AgentPrefix, 1, "")
	errs := []error{i.Publish(ctx), err}
	for _, set := range []string{AgentKeys, TunnelKeys} {
		if len(enrolled.Objects) > 0 {
			_, err = i.renewKeys(ctx, set)
		} else {
			err = i.publishSecretKeys(ctx, set, false)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RotateKey creates a new key for passes, and for each of the sets AgentKeys and TunnelKeys that exists. Earlier tokens
// stay valid, unless discard is true, which deletes all earlier keys.
//
// With a Signer, discard must be true. The Signer's key stays the only key of passes. Without a Signer, the new key
// signs passes even if a Signer did before.
func (i *Issuer) RotateKey(ctx context.Context, discard bool) error {
	if i.Signer != nil && !discard {
		return errors.New("rotate keys: a key in KMS signs passes; create another one there, and name it in " +
			"CLUSTERPASS_PASS_KMS_KEY")
	}
	var err error
	if i.Signer != nil {
		err = i.deleteOtherPassKeys(ctx)
	} else {
		err = i.rotatePassKeys(ctx, discard)
	}
	if err != nil {
		return err
	}
	for _, set := range []string{AgentKeys, TunnelKeys} {
		_, version, err := readKeys(ctx, i.Secrets, set)
		if err == nil && version != "" {
			if err = i.addKey(ctx, set, discard); err == nil {
				err = i.publishSecretKeys(ctx, set, true)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addKey adds a new key to a set's secret. If discard is true, it deletes all other keys.
func (i *Issuer) addKey(ctx context.Context, set string, discard bool) error {
	_, err := changeKeys(ctx, i.Secrets, set, func(s *keySet) (bool, error) {
		if discard {
			s.Keys = nil
		}
		return true, s.add(i.now())
	})
	return err
}

// rotatePassKeys adds a new key of passes to the secret store and publishes it. That key signs even if a Signer signed
// before. If discard is true, it deletes all other keys.
func (i *Issuer) rotatePassKeys(ctx context.Context, discard bool) error {
	if err := i.addKey(ctx, PassKeys, discard); err != nil {
		return err
	}
	now := i.now().UTC()
	return i.republish(ctx, PassKeys, func(p *publishedKeys) (bool, error) {
		keys, _, err := readKeys(ctx, i.Secrets, PassKeys)
		if err != nil {
			return false, err
		}
		if discard {
			p.Keys = nil
		} else if p.Signer != "" {
			p.retireAll(now)
		}
		p.Signer = ""
		p.syncWithSecret(keys, now)
		return true, nil
	})
}

// deleteOtherPassKeys deletes all keys of passes except the Signer's, including those in the secret store.
func (i *Issuer) deleteOtherPassKeys(ctx context.Context) error {
	key, err := i.publishSignerKey(ctx)
	if err != nil {
		return err
	}
	err = i.republish(ctx, PassKeys, func(p *publishedKeys) (bool, error) {
		before := len(p.Keys)
		p.Keys = slices.DeleteFunc(p.Keys, func(k publishedKey) bool { return k.Key.KeyID != key.key.KeyID })
		return len(p.Keys) != before, nil
	})
	if err != nil {
		return err
	}
	if err := i.Secrets.Delete(ctx, PassKeys); !errors.Is(err, secrets.ErrNotFound) {
		return err
	}
	return nil
}

// retireAll retires every key that is not retired yet.
func (p *publishedKeys) retireAll(now time.Time) {
	for i := range p.Keys {
		if p.Keys[i].Retired == nil {
			p.Keys[i].Retired = &now
		}
	}
}
