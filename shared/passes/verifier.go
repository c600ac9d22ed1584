package passes

import (
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

// What is read of the stores is remembered for so long, in numbers of at most maxRecords. Nobody can fill that who has no
// credential.
const (
	maxRecords = 10_000
	maxSets    = 3
	keysFresh  = 20 * time.Second // a key that is discarded is gone after that
	// keysStale is how long keys serve while their store is down. Passes can be revoked meanwhile.
	keysStale = time.Hour
	// retry is how often a store that is down is asked, and how often for a key id that nobody has.
	retry   = 2 * time.Second
	timeout = 5 * time.Second
)

// Fresh is how long what is known of a pass is believed before its store is asked again, where that is not on the same
// machine.
const Fresh = 3 * time.Second

// Config configures a Verifier.
type Config struct {
	Objects interface {
		Get(ctx context.Context, key string) (objects.Object, error)
	}
	// Secrets is asked for TunnelKeys only, to connect to the tunnel port and to open it.
	Secrets interface {
		Get(ctx context.Context, name string) (*secrets.Secret, error)
	}
	// URL is the gateway's; "" means that no tokens are taken.
	URL string
	// Fresh is how long what is known of a pass is believed before the store is asked again; 0 asks for every call.
	Fresh time.Duration
	Log   *slog.Logger     // nil means slog.Default()
	Now   func() time.Time // nil means time.Now
}

// Verifier identifies callers by passes and knows which certificates are revoked. It is safe for concurrent use.
type Verifier struct {
	cfg     Config
	records *cache.Cache[[]byte] // by key of the object store; nil for what is not there
	keys    *cache.Cache[*publishedKeys]
	tunnel  *cache.Cache[*keySet] // private ones
	proofs  possession.Proofs     // that agents used

	mu          sync.Mutex
	certificate *tls.Certificate // of the tunnel port
}

// NewVerifier returns a Verifier that has read nothing yet.
func NewVerifier(cfg Config) *Verifier {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	v := &Verifier{cfg: cfg}
	v.records = cache.New(cache.Config{
		Name: "passes", Max: maxRecords, TTL: cfg.Fresh, Stale: MaxAge, Retry: retry, Timeout: timeout,
		// That an object is not there is a value as any other: for a certificate's revocation it is the rule, and must serve while
		// the store is down.
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
	v.keys = cache.New(published, func(ctx context.Context, name string) (*publishedKeys, error) {
		o, err := cfg.Objects.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		return parsePublished(name, o.Value)
	})
	private := keysConfig(cfg, "tunnel", secrets.ErrNotFound, secrets.ErrUnavailable)
	v.tunnel = cache.New(private, func(ctx context.Context, name string) (*keySet, error) {
		s, err := cfg.Secrets.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		return parseKeys(name, s.Value)
	})
	return v
}

// keysConfig is for a cache of sets of keys, whose store has those two errors.
func keysConfig(cfg Config, name string, missing, down error) cache.Config {
	return cache.Config{
		Name: name, Max: maxSets, TTL: keysFresh, Negative: retry, Stale: keysStale, Retry: retry, Timeout: timeout,
		Missing: func(err error) bool { return errors.Is(err, missing) },
		Down:    func(err error) bool { return errors.Is(err, down) || errors.Is(err, context.DeadlineExceeded) },
		Now:     cfg.Now, Log: cfg.Log,
	}
}

// Stats counts for each cache by its name: "passes", "keys" (that verify) and "tunnel" (keys that sign there).
func (v *Verifier) Stats() map[string]cache.Stats {
	return map[string]cache.Stats{"passes": v.records.Stats(), "keys": v.keys.Stats(), "tunnel": v.tunnel.Stats()}
}

// Method is how the bearer of a pass was identified.
const Method = "pass"

// Method implements identity.TokenAuthenticator.
func (*Verifier) Method() string { return Method }

// IsPass reports whether a token says that the gateway made it. It verifies nothing: it says which tokens must not be passed on.
func (v *Verifier) IsPass(token string) bool {
	issuer, ok := identity.UnverifiedIssuer(token)
	return ok && v.cfg.URL != "" && issuer == v.cfg.URL
}

// AuthenticateToken implements identity.TokenAuthenticator.
func (v *Verifier) AuthenticateToken(ctx context.Context, token string) (*identity.User, error) {
	if !v.IsPass(token) {
		return nil, nil
	}
	c, name, err := v.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	return v.user(ctx, name, c.ID, c.Expiry.Time())
}

// verify returns what a token says that the gateway signed for itself, and the pass that it is of.
func (v *Verifier) verify(ctx context.Context, token string) (*jwt.Claims, string, error) {
	var own claims
	registered, err := v.signed(ctx, passToken, token, v.cfg.URL, &own)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, "", refused(err, "the pass %q has expired; get a new one", own.Pass)
	case err != nil:
		return nil, "", err
	case own.Pass == "":
		return nil, "", refused(nil, "the pass does not hold")
	}
	return registered, own.Pass, nil
}

// signed returns the registered claims of a token of kind k that the gateway signed for an audience, and fills in own.
// Its errors wrap jwt.ErrExpired where that is all that is wrong.
func (v *Verifier) signed(ctx context.Context, k kind, token, audience string, own any) (*jwt.Claims, error) {
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, refused(err, "the %s does not hold", k.what)
	}
	if !k.accepts(t) { // ParseSigned returns none without a signature, and so without a header
		return nil, refused(nil, "the %s does not hold", k.what)
	}
	key, err := v.key(ctx, k, t.Headers[0].KeyID)
	if err != nil {
		return nil, err
	}
	var registered jwt.Claims
	if err := t.Claims(key, &registered, own); err != nil {
		return nil, refused(err, "the %s does not hold", k.what)
	}
	err = registered.ValidateWithLeeway(jwt.Expected{Issuer: v.cfg.URL, AnyAudience: jwt.Audience{audience}, Time: v.cfg.Now()}, skew)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, refused(err, "the %s has expired; get a new one", k.what)
	case err != nil || registered.Expiry == nil || registered.ID == "":
		return nil, refused(err, "the %s does not hold", k.what)
	}
	return &registered, nil
}

// keyOf returns the id of the key that a token which signed has taken is signed with.
func keyOf(token string) string {
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return ""
	}
	return t.Headers[0].KeyID
}

// key returns the key of that id that may sign tokens of kind k, asking the store again for one that is not known.
func (v *Verifier) key(ctx context.Context, k kind, id string) (jose.JSONWebKey, error) {
	key, ok, err := v.find(k, id, func(set string) (*publishedKeys, error) { return v.keys.Get(ctx, set) })
	if err == nil && !ok {
		key, ok, err = v.find(k, id, func(set string) (*publishedKeys, error) {
			return v.keys.Renew(ctx, set, func(p *publishedKeys) bool { _, has := p.find(id, v.cfg.Now()); return !has })
		})
	}
	if err == nil && !ok {
		const text = "the %s is signed by a key that the gateway does not have any more; get a new one"
		err = refused(fmt.Errorf("key %q", id), text, k.what)
	}
	return key, err
}

// find looks for a key in the sets of a kind. A set that was never published has no keys. If none was published, find
// returns an error, since the keys are not known.
func (v *Verifier) find(
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
			err = v.unavailable(gerr)
		} else if key, ok = p.find(id, v.cfg.Now()); ok {
			return key, true, nil
		}
	}
	if !published {
		err = v.unpublished()
	}
	return key, false, err
}

// user returns the user of the pass of that name and uid, whose credential ends at end.
func (v *Verifier) user(ctx context.Context, name, uid string, end time.Time) (*identity.User, error) {
	p, err := v.pass(ctx, name, uid)
	if err != nil {
		return nil, err
	}
	u := &identity.User{
		Name: p.Spec.User, Groups: slices.Clone(p.Spec.Groups), Method: Method, Expires: end, Scope: scope(&p.Spec),
		Extra: map[string][]string{identity.ExtraPass: {name}},
		Recheck: func(ctx context.Context) error {
			now, err := v.pass(ctx, name, uid)
			if err == nil && !reflect.DeepEqual(now.Spec, p.Spec) {
				err = refused(nil, "the pass %q was changed", name)
			}
			return err
		},
	}
	return u, nil
}

// scope is nil where a pass is good for whatever its user may.
func scope(s *v1alpha1.PassSpec) *identity.Scope {
	if slices.Contains(s.Clusters, v1alpha1.Any) && slices.Contains(s.Verbs, v1alpha1.Any) {
		return nil
	}
	return &identity.Scope{Clusters: slices.Clone(s.Clusters), Verbs: slices.Clone(s.Verbs)}
}

// pass returns the pass of that name if it is the one with that uid, and still good.
func (v *Verifier) pass(ctx context.Context, name, uid string) (*v1alpha1.Pass, error) {
	value, err := v.records.Get(ctx, v1alpha1.PassPrefix+name)
	if err != nil {
		return nil, v.unavailable(err)
	}
	p := &v1alpha1.Pass{}
	if value == nil {
		return nil, refused(nil, "the pass %q was revoked", name)
	}
	if err := json.Unmarshal(value, p); err != nil {
		return nil, refused(err, "the pass %q cannot be read", name)
	}
	switch {
	case p.DeletionTimestamp != nil: // and a finalizer that somebody gave it keeps the object
		return nil, refused(nil, "the pass %q was revoked", name)
	case string(p.UID) != uid:
		return nil, refused(nil, "the pass %q was revoked; there is another one of that name", name)
	case p.Spec.User == "":
		return nil, refused(nil, "the pass %q says no user", name)
	case !v.cfg.Now().Before(p.Status.ExpirationTimestamp.Add(skew)):
		return nil, refused(nil, "the pass %q has expired; get a new one", name)
	}
	return p, nil
}

// Certificate has the form of identity.X509.Inspect. A certificate is good until its serial number is revoked, and one with a pass's URI
// only as long as its pass is.
func (v *Verifier) Certificate(ctx context.Context, leaf *x509.Certificate, u *identity.User) error {
	serial := Serial(leaf)
	u.Recheck = func(ctx context.Context) error { return v.revoked(ctx, serial) }
	if err := u.Recheck(ctx); err != nil {
		return err
	}
	name, uid, ok := passOf(leaf)
	if !ok {
		return nil
	}
	of, err := v.user(ctx, name, uid, leaf.NotAfter)
	if err != nil {
		return err
	}
	if of.Name != u.Name || !sameGroups(of.Groups, u.Groups) {
		return refused(nil, "the pass %q was changed", name)
	}
	ofPass := of.Recheck
	*u = *of
	u.Recheck = func(ctx context.Context) error {
		if err := v.revoked(ctx, serial); err != nil {
			return err
		}
		return ofPass(ctx)
	}
	return nil
}

// sameGroups compares without order, which certificates do not keep.
func sameGroups(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// passOf returns name and uid of the pass that a certificate is.
func passOf(leaf *x509.Certificate) (name, uid string, ok bool) {
	for _, u := range leaf.URIs {
		if u.Scheme == "clusterpass" {
			name, uid, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
			return name, uid, true
		}
	}
	return "", "", false
}

// revoked returns an error if the certificate with a serial number was revoked.
func (v *Verifier) revoked(ctx context.Context, serial string) error {
	value, err := v.records.Get(ctx, v1alpha1.RevocationPrefix+serial)
	switch {
	case err != nil:
		return v.unavailable(err)
	case value != nil:
		return refused(nil, "the client certificate was revoked; get a new one")
	}
	return nil
}

// Serial is a certificate's serial number as revocations are named.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

func refused(err error, format string, args ...any) *status.Error {
	return &status.Error{Reason: status.Unauthenticated, Message: fmt.Sprintf(format, args...), Err: err}
}

func (v *Verifier) unavailable(err error) error {
	return &status.Error{Reason: status.StoreUnavailable, Err: err, RetryAfter: max(retry, objects.RetryAfter(err), secrets.RetryAfter(err)),
		Message: "the gateway cannot read now whether your credential was revoked, and so refuses; try again"}
}

// unpublished is the error while no program has published the keys that verify.
func (v *Verifier) unpublished() error {
	const text = "the keys that verify passes are not published yet; try again, or have an administrator run clusterpass init"
	return &status.Error{Reason: status.StoreUnavailable, RetryAfter: retry, Message: text}
}

var _ identity.TokenAuthenticator = (*Verifier)(nil)
