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

// Signer signs tokens of passes with a key that never leaves a service such as AWS KMS. It is safe for concurrent use.
type Signer interface {
	// Public returns the name of the key, such as an ARN, and its public key on P-256. The error wraps ErrNotSigner if
	// this program may not use the key.
	Public(ctx context.Context) (name string, key *ecdsa.PublicKey, err error)
	// Sign returns the signature of a SHA-256 digest, in ASN.1 DER. Its errors are like those of Public.
	Sign(ctx context.Context, digest []byte) ([]byte, error)
}

// ErrNotSigner means that passes are signed by a Signer's key that this program does not know or may not use.
var ErrNotSigner = errors.New("this program does not sign passes")

const signatureHalf = 32 // bytes

// remoteKey implements jose.OpaqueSigner by a Signer. Create one for each token, because it contains a context.
type remoteKey struct {
	ctx    context.Context //nolint:containedctx // jose.OpaqueSigner has none
	signer Signer
	key    jose.JSONWebKey
}

func (r *remoteKey) Public() *jose.JSONWebKey { return &r.key }

func (r *remoteKey) Algs() []jose.SignatureAlgorithm { return []jose.SignatureAlgorithm{jose.ES256} }

// SignPayload converts the Signer's signature from DER to the format of JOSE, which is R followed by S.
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

// publicJWK returns a JWK whose id is the thumbprint of the key.
func publicJWK(key *ecdsa.PublicKey) (jose.JSONWebKey, error) {
	k := jose.JSONWebKey{Key: key, Algorithm: string(jose.ES256), Use: "sig"}
	thumbprint, err := k.Thumbprint(crypto.SHA256)
	k.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	return k, err
}

// signToken sets the claims iss and nbf, and signs the token with the signing key of its kind.
func (i *Issuer) signToken(
	ctx context.Context, k kind, registered jwt.Claims, privateClaims any,
) (secrets.Value, error) {
	if i.URL == "" {
		return secrets.Value{}, errors.New("create a token: its issuer, the gateway's URL, is not configured; " +
			"set CLUSTERPASS_URL")
	}
	key, err := i.key(ctx, k.signedBy)
	if err != nil {
		return secrets.Value{}, fmt.Errorf("get the key to sign the %s: %w", k.description, err)
	}
	registered.Issuer, registered.NotBefore = i.URL, registered.IssuedAt
	return serialize(key, k, registered, privateClaims)
}

// key returns the signing key of a set: a *remoteKey or a jose.JSONWebKey. It publishes the set first, so that
// verifiers can read the key. For keys in the secret store it also calls keySet.renew.
func (i *Issuer) key(ctx context.Context, set string) (any, error) {
	if set == PassKeys && i.Signer != nil {
		return i.publishSignerKey(ctx)
	}
	keys, err := i.renewKeys(ctx, set)
	if err != nil {
		return nil, err
	}
	return keys.signingKeyAt(i.now()).Key, nil
}

func serialize(key any, k kind, registered jwt.Claims, privateClaims any) (secrets.Value, error) {
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(k.typ))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
	if err != nil {
		return secrets.Value{}, err
	}
	token, err := jwt.Signed(signer).Claims(registered).Claims(privateClaims).Serialize()
	return secrets.NewValue([]byte(token)), err
}

// publishSignerKey publishes and returns the Signer's key. It retires all other keys of PassKeys: they only verify.
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
		if p.Signer == "" { // keys of the secret store have signed until now, and must still verify
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

// renewKeys calls keySet.renew for the secret of a set, publishes the public keys, and returns the set. The error wraps
// ErrNotSigner if a Signer's key signs.
func (i *Issuer) renewKeys(ctx context.Context, set string) (keys *keySet, err error) {
	now := i.now()
	err = i.republish(ctx, set, func(p *publishedKeys) (bool, error) {
		if p.Signer != "" {
			const todo = "name it in CLUSTERPASS_PASS_KMS_KEY, or run clusterpass pass rotate-key to sign with keys of the " +
				"secret store"
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

// publishKeysOfSecret publishes the public keys of a set's secret, unless a Signer's key signs. Without a secret, it
// publishes an empty set if allowEmpty is true.
func (i *Issuer) publishKeysOfSecret(ctx context.Context, set string, allowEmpty bool) error {
	if !allowEmpty {
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

// Publish publishes the keys that verify passes. Programs that sign passes call it when they start: until keys are
// published, requests with a pass get 503.
func (i *Issuer) Publish(ctx context.Context) error {
	if i.Signer != nil {
		// A program that may not use the Signer's key publishes the keys of the secret store, unless a Signer's key is
		// already published.
		if _, err := i.publishSignerKey(ctx); !errors.Is(err, ErrNotSigner) {
			return err
		}
	}
	return i.publishKeysOfSecret(ctx, PassKeys, true)
}

// PublishAll publishes the keys of all sets. If a cluster has agents, it also calls keySet.renew for AgentKeys and
// TunnelKeys. So old keys are replaced even while no agent renews its credential.
func (i *Issuer) PublishAll(ctx context.Context) error {
	enrolled, err := i.Objects.List(ctx, v1alpha1.AgentPrefix, 1, "")
	errs := []error{i.Publish(ctx), err}
	for _, set := range []string{AgentKeys, TunnelKeys} {
		if len(enrolled.Objects) > 0 {
			_, err = i.renewKeys(ctx, set)
		} else {
			err = i.publishKeysOfSecret(ctx, set, false)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RotateKey adds a key to sets of the secret store:
//   - to AgentKeys and TunnelKeys if they exist;
//   - to PassKeys without a Signer. The key of a former Signer then only verifies.
//
// A new key signs after activationDelay, or at once if its set has no older key. If discard is true, RotateKey deletes
// the older keys, which ends their tokens. With a Signer, discard must be true. PassKeys then keeps only the Signer's
// key.
func (i *Issuer) RotateKey(ctx context.Context, discard bool) error {
	if i.Signer != nil && !discard {
		return errors.New("rotate keys: a key in KMS signs passes; name a new one in CLUSTERPASS_PASS_KMS_KEY, or use " +
			"--discard to end the tokens of all other keys")
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
				err = i.publishKeysOfSecret(ctx, set, true)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (i *Issuer) addKey(ctx context.Context, set string, discard bool) error {
	_, err := changeKeys(ctx, i.Secrets, set, func(s *keySet) (bool, error) {
		if discard {
			s.Keys = nil
		}
		return true, s.add(i.now())
	})
	return err
}

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

func (p *publishedKeys) retireAll(now time.Time) {
	for i := range p.Keys {
		if p.Keys[i].Retired == nil {
			p.Keys[i].Retired = &now
		}
	}
}
