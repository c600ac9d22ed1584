package passes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	maxRecords = 10_000 // only credentials with a valid signature add entries
	maxSets    = 3
	// keysFresh is how long cached public keys are used before they are read again.
	keysFresh = 20 * time.Second
	// tunnelFresh is how long cached private keys of the tunnel port are used before they are read again. The cache
	// shortens this time by up to a tenth. While the secret can be read, a Verifier reads it at most twice a minute.
	tunnelFresh = 35 * time.Second
	// keysStale is the maximum age of cached keys while their store is down.
	keysStale = time.Hour
	// retry is the minimum interval between reads for a stale entry, a missing key set or an unknown key id. It is also
	// the minimum Retry-After of errors.
	retry   = 2 * time.Second
	timeout = 5 * time.Second // of one read
)

// RevocationTime is how long a revoked pass may be accepted while its store can be read.
const RevocationTime = 3 * time.Second

// RemoteFresh is the usual Config.Fresh for a store behind a network. The rest of RevocationTime is left for the read.
const RemoteFresh = RevocationTime - 250*time.Millisecond

// Config configures a Verifier. Only TunnelToken, TunnelCertificate and Prepare need Secrets.
type Config struct {
	Objects objects.Getter
	Secrets secrets.Getter
	// URL is the URL of the gateway. With "" no tokens of passes or agents are accepted.
	URL string
	// Fresh is how long a cached pass, revocation, enrolment or Cluster is used before it is read again. With 0 every
	// check reads the store. For published keys, keysFresh applies instead.
	Fresh time.Duration
	Log   *slog.Logger     // nil means slog.Default()
	Now   func() time.Time // nil means time.Now
}

// Verifier verifies the credentials that the gateway issues. It is safe for concurrent use.
type Verifier struct {
	cfg     Config
	records *cache.Cache[[]byte] // values in the object store by key, with nil for a missing object
	keys    *cache.Cache[*publishedKeys]
	tunnel  *cache.Cache[*keySet] // private keys of the tunnel port
	proofs  possession.Proofs     // proofs that agents have used

	mu          sync.Mutex
	certificate *tls.Certificate // the tunnel port's
}

// NewVerifier returns a Verifier with empty caches.
func NewVerifier(cfg Config) *Verifier {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	v := &Verifier{cfg: cfg}
	v.records = cache.New(cache.Config{
		Name: "passes", Max: maxRecords, TTL: cfg.Fresh, Stale: MaxAge, Retry: retry, Timeout: timeout,
		Source: cache.SourceOf(cfg.Objects),
		// A missing object is cached as nil: a certificate without a revocation must stay valid while the store is down.
		Missing: func(error) bool { return false },
		Down: func(err error) bool {
			return errors.Is(err, objects.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		},
		Now: cfg.Now, Log: cfg.Log,
	}, func(ctx context.Context, key string) ([]byte, error) {
		o, err := cfg.Objects.Get(ctx, key)
		if errors.Is(err, objects.ErrNotFound) {
			return nil, nil
		}
		return o.Value, err
	})
	published := keysConfig(cfg, "keys", objects.ErrNotFound, objects.ErrUnavailable)
	published.Source = cache.SourceOf(cfg.Objects)
	v.keys = cache.New(published, func(ctx context.Context, name string) (*publishedKeys, error) {
		o, err := cfg.Objects.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		return parsePublished(name, o.Value)
	})
	private := keysConfig(cfg, "tunnel", secrets.ErrNotFound, secrets.ErrUnavailable)
	private.TTL = tunnelFresh
	v.tunnel = cache.New(private, func(ctx context.Context, name string) (*keySet, error) {
		s, err := cfg.Secrets.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		return parseKeys(name, s.Value)
	})
	return v
}

// keysConfig configures a cache of key sets. The store of the key sets returns errMissing for a missing set, and
// errDown during an outage.
func keysConfig(cfg Config, name string, errMissing, errDown error) cache.Config {
	return cache.Config{
		Name: name, Max: maxSets, TTL: keysFresh, Negative: retry, Stale: keysStale, Retry: retry, Timeout: timeout,
		Missing: func(err error) bool { return errors.Is(err, errMissing) },
		Down:    func(err error) bool { return errors.Is(err, errDown) || errors.Is(err, context.DeadlineExceeded) },
		Now:     cfg.Now, Log: cfg.Log,
	}
}

// Stats returns the statistics of the caches: "passes", "keys" (public) and "tunnel" (private).
func (v *Verifier) Stats() map[string]cache.Stats {
	return map[string]cache.Stats{"passes": v.records.Stats(), "keys": v.keys.Stats(), "tunnel": v.tunnel.Stats()}
}

// Method is the authentication method of a pass.
const Method = "pass"

// Method implements identity.TokenAuthenticator.
func (*Verifier) Method() string { return Method }

// HasGatewayIssuer reports whether a token claims the gateway as its issuer, as passes, agents' credentials and tunnel
// tokens do. It verifies nothing.
func (v *Verifier) HasGatewayIssuer(token string) bool {
	issuer, ok := identity.UnverifiedIssuer(token)
	return ok && v.cfg.URL != "" && issuer == v.cfg.URL
}

// AuthenticateToken implements identity.TokenAuthenticator.
func (v *Verifier) AuthenticateToken(ctx context.Context, token string) (*identity.User, error) {
	if !v.HasGatewayIssuer(token) {
		return nil, nil
	}
	c, name, err := v.verifyPass(ctx, token)
	if err != nil {
		return nil, err
	}
	u, err := v.user(ctx, name, c.ID, c.Expiry.Time())
	if err != nil {
		return nil, err
	}
	recheckPass := u.Recheck
	u.Recheck = func(ctx context.Context) error {
		if _, err := v.key(ctx, passToken, c.keyID); err != nil {
			return err
		}
		return recheckPass(ctx)
	}
	return u, nil
}

func (v *Verifier) verifyPass(ctx context.Context, token string) (*verifiedClaims, string, error) {
	var own claims
	registered, err := v.verifySigned(ctx, passToken, token, v.cfg.URL, &own)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, "", refusal(err, "the pass %q has expired; get a new one", own.Pass)
	case err != nil:
		return nil, "", err
	case own.Pass == "":
		return nil, "", refusal(nil, "the pass is invalid")
	}
	return registered, own.Pass, nil
}

// verifiedClaims are the registered claims of a token whose signature was verified.
type verifiedClaims struct {
	jwt.Claims
	keyID string // ID of the verifying key
}

// verifySigned verifies a token, returns its registered claims, and decodes its private claims to privateClaims. The
// error wraps jwt.ErrExpired only if the signature, the issuer and the audience are valid.
func (v *Verifier) verifySigned(
	ctx context.Context, k kind, token, audience string, privateClaims any,
) (*verifiedClaims, error) {
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, refusal(err, "the %s is invalid", k.description)
	}
	// ParseSigned rejects tokens without a signature, so t.Headers[0] exists.
	if !k.accepts(t) {
		return nil, refusal(nil, "the %s is invalid", k.description)
	}
	key, err := v.key(ctx, k, t.Headers[0].KeyID)
	if err != nil {
		return nil, err
	}
	var registered jwt.Claims
	if err := t.Claims(key, &registered, privateClaims); err != nil {
		return nil, refusal(err, "the %s is invalid", k.description)
	}
	err = registered.ValidateWithLeeway(jwt.Expected{Issuer: v.cfg.URL, AnyAudience: jwt.Audience{audience},
		Time: v.cfg.Now()}, clockSkew)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, refusal(err, "the %s has expired; get a new one", k.description)
	case err != nil || registered.Expiry == nil || registered.ID == "":
		return nil, refusal(err, "the %s is invalid", k.description)
	}
	return &verifiedClaims{registered, key.KeyID}, nil
}

// key returns the public key with that id from the sets of kind k. If no cached set has it, the store is read again.
func (v *Verifier) key(ctx context.Context, k kind, id string) (jose.JSONWebKey, error) {
	key, ok, err := v.findKey(k, id, func(set string) (*publishedKeys, error) { return v.keys.Get(ctx, set) })
	if err == nil && !ok {
		key, ok, err = v.findKey(k, id, func(set string) (*publishedKeys, error) {
			return v.keys.Renew(ctx, set, func(p *publishedKeys) bool { _, has := p.find(id, v.cfg.Now()); return !has })
		})
	}
	if err == nil && !ok {
		const text = "the %s is signed by a key that the gateway does not have; get a new one"
		err = refusal(fmt.Errorf("key %q", id), text, k.description)
	}
	return key, err
}

// findKey searches the key sets of a kind, and skips unpublished ones. If none is published, the error is
// StoreUnavailable and not Unauthenticated, because the token may be valid.
func (v *Verifier) findKey(
	k kind, id string, get func(set string) (*publishedKeys, error),
) (key jose.JSONWebKey, ok bool, err error) {
	published := false
	for _, set := range k.verifiedBy {
		p, gerr := get(set)
		if errors.Is(gerr, objects.ErrNotFound) {
			continue
		}
		published = true
		if gerr != nil {
			err = unavailable(credentialUnchecked, gerr)
		} else if key, ok = p.find(id, v.cfg.Now()); ok {
			return key, true, nil
		}
	}
	if !published {
		err = newUnpublishedError()
	}
	return key, false, err
}

func (v *Verifier) user(ctx context.Context, name, uid string, end time.Time) (*identity.User, error) {
	before, p, err := v.pass(ctx, name, uid)
	if err != nil {
		return nil, err
	}
	expires := p.Status.ExpirationTimestamp.Add(clockSkew)
	u := &identity.User{
		Name: p.Spec.User, Groups: slices.Clone(p.Spec.Groups), Method: Method, Expires: end, Scope: scopeOf(&p.Spec),
		Extra: map[string][]string{identity.ExtraPass: {name}},
		Recheck: func(ctx context.Context) error {
			// An unchanged object is not decoded again, because thousands of streams may need this check.
			if value, err := v.records.Get(ctx, v1alpha1.PassPrefix+name); err == nil && bytes.Equal(value, before) &&
				v.cfg.Now().Before(expires) {
				return nil
			}
			_, current, err := v.pass(ctx, name, uid)
			if err == nil && !reflect.DeepEqual(current.Spec, p.Spec) {
				err = refusal(nil, "the pass %q was changed since the stream was opened; open it again", name)
			}
			return err
		},
	}
	return u, nil
}

func scopeOf(s *v1alpha1.PassSpec) *identity.Scope {
	if slices.Contains(s.Clusters, v1alpha1.Any) && slices.Contains(s.Verbs, v1alpha1.Any) {
		return nil
	}
	return &identity.Scope{Clusters: slices.Clone(s.Clusters), Verbs: slices.Clone(s.Verbs)}
}

// pass returns the stored value of a valid pass, and the decoded pass.
func (v *Verifier) pass(ctx context.Context, name, uid string) ([]byte, *v1alpha1.Pass, error) {
	value, err := v.records.Get(ctx, v1alpha1.PassPrefix+name)
	if err != nil {
		return nil, nil, unavailable(credentialUnchecked, err)
	}
	p := &v1alpha1.Pass{}
	if value == nil {
		return nil, nil, refusal(nil, "the pass %q was revoked", name)
	}
	if err := json.Unmarshal(value, p); err != nil {
		return nil, nil, refusal(err, "the pass %q is invalid: its object cannot be decoded; get a new one", name)
	}
	switch {
	case p.DeletionTimestamp != nil: // a finalizer may keep the object
		return nil, nil, refusal(nil, "the pass %q was revoked", name)
	case string(p.UID) != uid:
		return nil, nil, refusal(nil, "the pass %q was revoked; there is another one of that name", name)
	case p.Spec.User == "":
		return nil, nil, refusal(nil, "the pass %q is invalid: its object has no user; get a new one", name)
	case !v.cfg.Now().Before(p.Status.ExpirationTimestamp.Add(clockSkew)):
		return nil, nil, refusal(nil, "the pass %q has expired; get a new one", name)
	}
	return value, p, nil
}

// CheckCertificate rejects a certificate that is revoked, or whose pass is no longer valid. It sets u.Recheck. For the
// certificate of a pass, it replaces *u by the user of that pass. It implements identity.X509.Inspect.
func (v *Verifier) CheckCertificate(ctx context.Context, leaf *x509.Certificate, u *identity.User) error {
	serial := Serial(leaf)
	u.Recheck = func(ctx context.Context) error { return v.checkRevocation(ctx, serial) }
	if err := u.Recheck(ctx); err != nil {
		return err
	}
	name, uid, ok := passOf(leaf)
	if !ok {
		return nil
	}
	passUser, err := v.user(ctx, name, uid, leaf.NotAfter)
	if err != nil {
		return err
	}
	if passUser.Name != u.Name || !hasSameGroups(passUser.Groups, u.Groups) {
		return refusal(nil, "the pass %q was changed after its certificate was issued; get a new one", name)
	}
	recheckPass := passUser.Recheck
	*u = *passUser
	u.Recheck = func(ctx context.Context) error {
		if err := v.checkRevocation(ctx, serial); err != nil {
			return err
		}
		return recheckPass(ctx)
	}
	return nil
}

// hasSameGroups reports whether a and b have the same groups in any order. Certificates do not keep the order.
func hasSameGroups(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func passOf(leaf *x509.Certificate) (name, uid string, ok bool) {
	for _, u := range leaf.URIs {
		if u.Scheme == "clusterpass" {
			name, uid, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
			return name, uid, true
		}
	}
	return "", "", false
}

func (v *Verifier) checkRevocation(ctx context.Context, serial string) error {
	value, err := v.records.Get(ctx, v1alpha1.RevocationPrefix+serial)
	switch {
	case err != nil:
		return unavailable(credentialUnchecked, err)
	case value != nil:
		return refusal(nil, "the client certificate was revoked; get a new one")
	}
	return nil
}

// Serial returns a certificate's serial number in hexadecimal. The Revocation object of the certificate has this name.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

func refusal(err error, format string, args ...any) *status.Error {
	return &status.Error{Reason: status.Unauthenticated, Message: fmt.Sprintf(format, args...), Err: err}
}

const credentialUnchecked = "your credential cannot be checked"

// unavailable returns the error for a failed read of a store. Its message begins with the consequence for the caller.
func unavailable(consequence string, err error) error {
	return &status.Error{Reason: status.StoreUnavailable, Err: err,
		RetryAfter: max(retry, objects.RetryAfter(err), secrets.RetryAfter(err)),
		Message:    consequence + ": the gateway's store fails now; try again"}
}

func newUnpublishedError() error {
	const text = "the keys that verify the gateway's credentials are not published yet; try again, or have an " +
		"administrator run clusterpass init"
	return &status.Error{Reason: status.StoreUnavailable, RetryAfter: retry, Message: text}
}

var _ identity.TokenAuthenticator = (*Verifier)(nil)
