package passes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const gatewayURL = "https://gateway.example.com"

type failingStore struct {
	objects.Store
	isDown atomic.Bool
	keys   atomic.Int64 // reads of sets of keys
}

func (d *failingStore) Get(ctx context.Context, key string) (objects.Object, error) {
	if strings.HasPrefix(key, "keys/") {
		d.keys.Add(1)
	}
	if d.isDown.Load() {
		return objects.Object{}, objects.Unavailable(errors.New("out of order"), time.Second)
	}
	return d.Store.Get(ctx, key)
}

type testGateway struct {
	*Issuer
	*Verifier
	t     *testing.T
	clock *testingclock.FakeClock
	store *failingStore
}

func newTestGateway(t *testing.T) *testGateway {
	t.Helper()
	o := &testGateway{t: t, clock: testingclock.NewFakeClock(time.Now())}
	i := clustertest.NewInstallation(t)
	o.store = &failingStore{Store: i.Objects}
	o.Issuer = &Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: gatewayURL, CA: i.CA, Now: o.clock.Now}
	o.Verifier = NewVerifier(Config{
		Objects: o.store, Secrets: i.Secrets, URL: gatewayURL, Fresh: RemoteFresh, Now: o.clock.Now,
	})
	return o
}

func (o *testGateway) issue(name string, change func(*v1alpha1.PassSpec)) *Issued {
	o.t.Helper()
	p := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PassSpec{
		User: "ann", Groups: []string{"ops", "dev"}, Clusters: []string{"member1"}, Verbs: []string{"get"},
	}}
	if change != nil {
		change(&p.Spec)
	}
	issued, err := o.Create(o.t.Context(), p)
	if err != nil {
		o.t.Fatal(err)
	}
	return issued
}

func certificate(s *v1alpha1.PassSpec) { s.Form = v1alpha1.Certificate }

func (o *testGateway) authenticate(issued *Issued) (*identity.User, error) {
	o.t.Helper()
	if issued.Pass.Spec.Form == v1alpha1.Token {
		return o.AuthenticateToken(o.t.Context(), string(issued.Token.Reveal()))
	}
	pair, err := tls.X509KeyPair(issued.Certificate, issued.Key.Reveal())
	if err != nil {
		o.t.Fatal(err)
	}
	return o.authenticateLeaf(pair.Leaf)
}

func (o *testGateway) authenticateLeaf(leaf *x509.Certificate) (*identity.User, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	return identity.X509{
		CA: identity.NewClientCA(o.CA.Pool(), o.clock.Now), Peer: identity.TLSPeer, Inspect: o.Certificate,
	}.Authenticate(r)
}

func (o *testGateway) wantRefused(u *identity.User, err error, message string) {
	o.t.Helper()
	o.want(u, err, status.Unauthenticated, message)
}

func (o *testGateway) want(u *identity.User, err error, reason status.Reason, message string) {
	o.t.Helper()
	if err == nil {
		o.t.Fatalf("accepted as %+v, want: %s", u, message)
	}
	if e := status.From(err); u != nil || e.Reason != reason || !strings.Contains(e.Message, message) {
		o.t.Errorf("%+v, %s: %s (%v)\nwant %s: %s", u, e.Reason, e.Message, e.Err, reason, message)
	}
}

var forms = map[string]func(*v1alpha1.PassSpec){"token": nil, "certificate": certificate}

func TestPasses(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			issued := o.issue("ci", form)
			u, err := o.authenticate(issued)
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Recheck(t.Context()); err != nil {
				t.Error(err)
			}
			u.Recheck = nil
			want := &identity.User{
				Name: "ann", Groups: []string{"ops", "dev"}, Method: "pass",
				Extra:   map[string][]string{"clusterpass.io/pass": {"ci"}},
				Expires: issued.Pass.Status.ExpirationTimestamp.Time,
				Scope:   &identity.Scope{Clusters: []string{"member1"}, Verbs: []string{"get"}},
			}
			if diff := cmp.Diff(want, u, cmp.Comparer(time.Time.Equal)); diff != "" {
				t.Error(diff)
			}
			if end := o.clock.Now().Add(DefaultTTL); issued.Pass.Status.ExpirationTimestamp.Sub(end).Abs() > time.Second {
				t.Errorf("it ends at %s, want %s", issued.Pass.Status.ExpirationTimestamp, end)
			}
			if whole, err := o.authenticate(o.issue("all", func(s *v1alpha1.PassSpec) {
				if form != nil {
					form(s)
				}
				s.Clusters, s.Verbs = []string{"x", "*"}, []string{"*"}
			})); err != nil || whole.Scope != nil {
				t.Errorf("without limits: %+v, %v", whole, err)
			}
		})
	}
}

func TestExpiry(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			issued := o.issue("ci", form)
			u, err := o.authenticate(issued)
			if err != nil {
				t.Fatal(err)
			}
			o.clock.Step(DefaultTTL + clockSkew + time.Second)
			again, err := o.authenticate(issued)
			o.wantRefused(again, err, "has expired")
			if err := u.Recheck(t.Context()); err == nil {
				t.Error("an open stream goes on")
			}
		})
	}
}

// A revoked pass must stop working within RemoteFresh, also for open streams.
func TestRevocation(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			issued := o.issue("ci", form)
			u, err := o.authenticate(issued)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Revoke(t.Context(), "ci"); err != nil {
				t.Fatal(err)
			}
			o.clock.Step(RemoteFresh)
			again, err := o.authenticate(issued)
			o.wantRefused(again, err, `the pass "ci" was revoked`)
			if err := u.Recheck(t.Context()); err == nil {
				t.Error("an open stream goes on")
			}
			if err := o.Revoke(t.Context(), "ci"); !errors.Is(err, objects.ErrNotFound) {
				t.Errorf("twice: %v", err)
			}
			// A new pass of the same name is a different pass.
			next := o.issue("ci", form)
			o.clock.Step(RemoteFresh)
			if _, err := o.authenticate(next); err != nil {
				t.Error(err)
			}
			again, err = o.authenticate(issued)
			o.wantRefused(again, err, "there is another one of that name")
		})
	}
}

// An edit of a pass's object must end its credential, never change its user or rights.
func TestChanged(t *testing.T) {
	change := func(o *testGateway, edit func(*v1alpha1.Pass)) {
		t.Helper()
		old, err := o.Objects.Get(t.Context(), "passes/ci")
		if err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.Pass
		if err := json.Unmarshal(old.Value, &p); err != nil {
			t.Fatal(err)
		}
		edit(&p)
		value, err := json.Marshal(p)
		if err == nil {
			_, err = o.Objects.Update(t.Context(), old.Key, value, old.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.clock.Step(RemoteFresh)
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			o := newTestGateway(t)
			u, err := o.authenticate(o.issue("ci", form))
			if err != nil {
				t.Fatal(err)
			}
			change(o, func(p *v1alpha1.Pass) { p.Labels = map[string]string{"a": "b"} })
			if err := u.Recheck(t.Context()); err != nil {
				t.Errorf("a label: %v", err)
			}
			change(o, func(p *v1alpha1.Pass) { p.Spec.Clusters = []string{"member2"} })
			o.wantRefused(nil, u.Recheck(t.Context()), `the pass "ci" was changed`)
		})
	}
	o := newTestGateway(t)
	issued := o.issue("ci", certificate)
	change(o, func(p *v1alpha1.Pass) { p.Spec.User = "root" })
	u, err := o.authenticate(issued)
	o.wantRefused(u, err, `the pass "ci" was changed`)
}

// A client certificate without a pass needs no object, and must stop working when it is revoked.
func TestPlainCertificates(t *testing.T) {
	o := newTestGateway(t)
	leaf := func() *x509.Certificate {
		cert, key, err := o.CA.Client("bob", []string{"dev"})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	lost, other := leaf(), leaf()
	u, err := o.authenticateLeaf(lost)
	if err != nil || u.Method != "x509" || u.Scope != nil {
		t.Fatalf("%+v, %v", u, err)
	}
	colons := strings.ToUpper(fmt.Sprintf("% X", lost.SerialNumber.Bytes()))
	serial, err := o.RevokeCertificate(t.Context(), Revocation{Serial: strings.ReplaceAll(colons, " ", ":"), User: "bob",
		Reason: "lost"})
	if err != nil || serial != Serial(lost) {
		t.Fatalf("%s, %v", serial, err)
	}
	if _, err := o.RevokeCertificate(t.Context(), Revocation{Serial: serial}); err != nil {
		t.Errorf("twice: %v", err)
	}
	o.clock.Step(RemoteFresh)
	again, err := o.authenticateLeaf(lost)
	o.wantRefused(again, err, "the client certificate was revoked")
	o.wantRefused(nil, u.Recheck(t.Context()), "the client certificate was revoked")
	if _, err := o.authenticateLeaf(other); err != nil {
		t.Errorf("another of the same user: %v", err)
	}
	all, err := o.Revocations(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != serial || all[0].Spec.Reason != "lost" || all[0].Spec.User != "bob" {
		t.Errorf("%+v, %v", all, err)
	}
	issued := o.issue("ci", certificate)
	if _, err := o.authenticate(issued); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.Certificate, issued.Key.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.RevokeCertificate(t.Context(), Revocation{Serial: Serial(pair.Leaf)}); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(RemoteFresh)
	again, err = o.authenticate(issued)
	o.wantRefused(again, err, "the client certificate was revoked")
	for _, bad := range []string{"", "xyz", "-1", "0", strings.Repeat("f", 41)} {
		if _, err := o.RevokeCertificate(t.Context(), Revocation{Serial: bad}); err == nil {
			t.Errorf("serial %q is taken", bad)
		}
	}
}

// TestSerialNumbersOfOpenSSL: users revoke a lost certificate by pasting what openssl printed.
func TestSerialNumbersOfOpenSSL(t *testing.T) {
	for text, want := range map[string]string{
		"0A1B2C": "a1b2c", "0a1b2c": "a1b2c", "0x0A1B2C": "a1b2c", "a1b2c": "a1b2c", // digits alone
		"serial=0A1B2C": "a1b2c", "serial=0A1B2C\n": "a1b2c", // openssl x509 -serial
		"serial=0x0A1B2C": "a1b2c", "Serial = 0A1B2C": "a1b2c",
		"0a:1b:2c": "a1b2c", "Serial Number:\n            0a:1b:2c\n": "a1b2c", // openssl x509 -text
		"        Serial Number: 2587 (0xa1b)": "a1b", "2587 (0xa1b)": "a1b",
		"": "", "serial=": "", "serial=xyz": "", "serial=-0A": "", "-0A": "", "0": "", ":": "", "serial=0A1B 2C": "",
		"issuer=0A1B": "", strings.Repeat("f", 41): "",
	} {
		got, err := parseSerial(text)
		if got != want || (err == nil) != (want != "") ||
			err != nil && !strings.Contains(err.Error(), "openssl x509 -serial") {
			t.Errorf("%q is read as %q, %v; want %q", text, got, err, want)
		}
	}
}

// While the store is down, callers must stay authenticated for MaxAge, but no longer: passes may be revoked.
func TestOutage(t *testing.T) {
	o := newTestGateway(t)
	token, cert := o.issue("token", nil), o.issue("cert", certificate)
	plain, key, err := o.CA.Client("bob", nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(plain, key)
	if err != nil {
		t.Fatal(err)
	}
	authenticators := map[string]func() (*identity.User, error){
		"token":       func() (*identity.User, error) { return o.authenticate(token) },
		"certificate": func() (*identity.User, error) { return o.authenticate(cert) },
		"plain":       func() (*identity.User, error) { return o.authenticateLeaf(pair.Leaf) },
	}
	users := map[string]*identity.User{}
	for name, a := range authenticators {
		if users[name], err = a(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	o.store.isDown.Store(true)
	for _, d := range []time.Duration{RemoteFresh, MaxAge - 2*RemoteFresh} {
		o.clock.Step(d)
		for name, a := range authenticators {
			if _, err := a(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	o.clock.Step(2 * RemoteFresh)
	for name, a := range authenticators {
		u, err := a()
		o.want(u, err, status.StoreUnavailable, "your credential cannot be checked: the gateway's store fails now")
		o.want(nil, users[name].Recheck(t.Context()), status.StoreUnavailable, "your credential cannot be checked")
	}
	unknown := newTestGateway(t)
	unknown.store.isDown.Store(true)
	u, err := unknown.authenticate(unknown.issue("new", nil))
	o.want(u, err, status.StoreUnavailable, "your credential cannot be checked")
	_, err = unknown.public(t.Context()) // read without a credential
	o.want(nil, err, status.StoreUnavailable, "the keys that verify passes cannot be read")
	o.store.isDown.Store(false)
	o.clock.Step(retry)
	for name, a := range authenticators {
		if _, err := a(); err != nil {
			t.Errorf("up again: %s: %v", name, err)
		}
	}
}

// A key rotation must not end passes, unless it discards the earlier keys.
func TestKeys(t *testing.T) {
	o := newTestGateway(t)
	week := func(s *v1alpha1.PassSpec) { s.TTL.Duration = MaxTTL }
	first := o.issue("first", week)
	kid := func(issued *Issued) string {
		parsed, err := jwt.ParseSigned(string(issued.Token.Reveal()), []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Headers[0].KeyID
	}
	if err := o.RotateKey(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if issued := o.issue("too-early", nil); kid(issued) != kid(first) {
		t.Error("a key signs that other gateways may not have yet")
	}
	o.clock.Step(activationDelay)
	second := o.issue("second", week)
	if kid(second) == kid(first) {
		t.Error("the new key does not sign")
	}
	for name, issued := range map[string]*Issued{"first": first, "second": second} {
		if _, err := o.authenticate(issued); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := o.RotateKey(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	third := o.issue("third", week)
	o.clock.Step(keysFresh)
	if _, err := o.authenticate(third); err != nil {
		t.Error(err)
	}
	for _, issued := range []*Issued{first, second} {
		u, err := o.authenticate(issued)
		o.wantRefused(u, err, "a key that the gateway does not have any more")
	}
	// Keys are renewed automatically, and removed once all their tokens have expired.
	o.clock.Step(keyLife)
	o.issue("fourth", week)
	keys := func() int {
		set, err := o.public(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(set.Keys)
	}
	if n := keys(); n != 2 {
		t.Errorf("%d keys, want the old and the new one", n)
	}
	o.clock.Step(keyLife)
	o.issue("fifth", week)
	o.clock.Step(keysFresh)
	if n := keys(); n != 2 {
		t.Errorf("%d keys, want the last two", n)
	}
}

// Invented key ids must not cause reads of the store.
func TestUnknownKeys(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	if _, err := o.authenticate(issued); err != nil {
		t.Fatal(err)
	}
	before := o.store.keys.Load()
	parts := strings.Split(string(issued.Token.Reveal()), ".")
	for i := range 20 {
		head := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"ES256","kid":"made-up-%d"}`, i))
		u, err := o.AuthenticateToken(t.Context(), strings.Join([]string{head, parts[1], parts[2]}, "."))
		o.wantRefused(u, err, "a key that the gateway does not have any more")
	}
	if n := o.store.keys.Load() - before; n > 1 {
		t.Errorf("the store was asked %d times", n)
	}
}

func withClaim(claims map[string]any, key string, value any) map[string]any {
	out := maps.Clone(claims)
	if out[key] = value; value == nil {
		delete(out, key)
	}
	return out
}

func signClaims(t *testing.T, alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestForged(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	keys, err := changeKeys(t.Context(), o.Secrets, PassKeys, func(*keySet) (bool, error) { return false, nil })
	if err != nil {
		t.Fatal(err)
	}
	now := o.clock.Now()
	good := map[string]any{
		"iss": gatewayURL, "aud": gatewayURL, "sub": "ann", "jti": string(issued.Pass.UID), "iat": now.Unix(),
		"nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"clusterpass.io/pass": "ci",
	}
	with := func(key string, value any) map[string]any { return withClaim(good, key, value) }
	sign := func(alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
		return signClaims(t, alg, key, claims)
	}
	own := keys.Keys[0].Key
	if u, err := o.AuthenticateToken(t.Context(), sign(jose.ES256, own, good)); err != nil || u.Name != "ann" {
		t.Fatalf("a valid token is refused: %+v, %v", u, err)
	}
	otherSet := &keySet{}
	if err := otherSet.add(now); err != nil {
		t.Fatal(err)
	}
	otherKey := otherSet.Keys[0].Key
	otherKey.KeyID = own.KeyID
	public, err := x509.MarshalPKIXPublicKey(own.Public().Key)
	if err != nil {
		t.Fatal(err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	token := string(issued.Token.Reveal())
	parts := strings.Split(token, ".")
	for name, tt := range map[string]struct{ token, want string }{
		"another key": {sign(jose.ES256, otherKey, good), "is invalid"},
		"the public key as a secret": {sign(jose.HS256, jose.JSONWebKey{Key: public, KeyID: own.KeyID}, good),
			"is invalid"},
		"no signature": {none + "." + parts[1] + ".", "is invalid"},
		"no key id":    {sign(jose.ES256, own.Key, good), "a key that the gateway does not have any more"},
		"another pass under the same": {parts[0] + "." +
			strings.Split(sign(jose.ES256, own, with("clusterpass.io/pass", "root")), ".")[1] + "." + parts[2], "is invalid"},
		"for somebody else": {sign(jose.ES256, own, with("aud", "https://other.example.com")), "is invalid"},
		"for nobody":        {sign(jose.ES256, own, with("aud", nil)), "is invalid"},
		"expired": {sign(jose.ES256, own, with("exp", now.Add(-time.Minute).Unix())),
			`the pass "ci" has expired`},
		"for ever":                      {sign(jose.ES256, own, with("exp", nil)), "is invalid"},
		"not yet":                       {sign(jose.ES256, own, with("nbf", now.Add(time.Minute).Unix())), "is invalid"},
		"without a pass":                {sign(jose.ES256, own, with("clusterpass.io/pass", nil)), "is invalid"},
		"without an id":                 {sign(jose.ES256, own, with("jti", nil)), "is invalid"},
		"of another object of the name": {sign(jose.ES256, own, with("jti", "1")), "was revoked"},
		"of no object":                  {sign(jose.ES256, own, with("clusterpass.io/pass", "x")), "was revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			if !o.IsPass(tt.token) {
				t.Error("it could be passed on")
			}
			u, err := o.AuthenticateToken(t.Context(), tt.token)
			o.wantRefused(u, err, tt.want)
		})
	}
	for name, token := range map[string]string{
		"another issuer": sign(jose.ES256, own, with("iss", gatewayURL+"/")),
		"no issuer":      sign(jose.ES256, own, with("iss", nil)), "no token": "abc",
	} {
		if u, err := o.AuthenticateToken(t.Context(), token); u != nil || err != nil || o.IsPass(token) {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.Pass){
		`metadata.name "A": `:                           func(p *v1alpha1.Pass) { p.Name = "A" },
		`metadata.name "": `:                            func(p *v1alpha1.Pass) { p.Name = "" },
		`spec.user "": `:                                func(p *v1alpha1.Pass) { p.Spec.User = "" },
		`spec.user " ann": `:                            func(p *v1alpha1.Pass) { p.Spec.User = " ann" },
		`spec.groups "a\nb": `:                          func(p *v1alpha1.Pass) { p.Spec.Groups = []string{"a\nb"} },
		`spec.clusters: name the clusters`:              func(p *v1alpha1.Pass) { p.Spec.Clusters = nil },
		`spec.clusters "a/b": `:                         func(p *v1alpha1.Pass) { p.Spec.Clusters = []string{"a/b"} },
		`spec.verbs: name the verbs`:                    func(p *v1alpha1.Pass) { p.Spec.Verbs = nil },
		`spec.verbs "list": want one of *, get, create`: func(p *v1alpha1.Pass) { p.Spec.Verbs = []string{"list"} },
		`spec.ttl 59s: want 1m0s to 168h0m0s`:           func(p *v1alpha1.Pass) { p.Spec.TTL.Duration = 59 * time.Second },
		`spec.ttl 168h0m1s: `: func(p *v1alpha1.Pass) {
			p.Spec.TTL.Duration = MaxTTL +
				time.Second
		},
		`spec.form "jwt": want token or certificate`: func(p *v1alpha1.Pass) { p.Spec.Form = "jwt" },
		`spec.ttl 24h0m1s: want 1m0s to 24h0m0s`: func(p *v1alpha1.Pass) {
			p.Spec.Form, p.Spec.TTL.Duration = v1alpha1.Certificate, MaxCertificateTTL+time.Second
		},
	} {
		p := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "ci"},
			Spec: v1alpha1.PassSpec{User: "ann", Clusters: []string{"m"}, Verbs: []string{"get"}}}
		change(p)
		Default(&p.Spec, MaxTTL)
		if err := Validate(p, MaxTTL); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	if _, err := o.Create(t.Context(), issued.Pass); !errors.Is(err, objects.ErrExists) {
		t.Errorf("twice: %v", err)
	}
}

type interceptedStore struct {
	objects.Store
	beforeDelete func()
}

func (b *interceptedStore) Delete(ctx context.Context, key string, revision uint64) (objects.Object, error) {
	if do := b.beforeDelete; do != nil {
		b.beforeDelete = nil
		do()
	}
	return b.Store.Delete(ctx, key, revision)
}

// A revocation must succeed during updates of the pass, and must not delete a later pass of that name.
func TestRevokedWhileWritten(t *testing.T) {
	o := newTestGateway(t)
	store := o.Objects
	issued := o.issue("ci", nil)
	key := v1alpha1.PassPrefix + "ci"
	o.Objects = &interceptedStore{store, func() {
		old, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		p := issued.Pass.DeepCopy()
		p.Labels = map[string]string{"a": "b"}
		value, err := json.Marshal(p)
		if err == nil {
			_, err = store.Update(t.Context(), key, value, old.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}}
	if err := o.Revoke(t.Context(), "ci"); err != nil {
		t.Errorf("labelled meanwhile: %v", err)
	}
	if _, err := store.Get(t.Context(), key); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}

	o.issue("ci", nil)
	o.Objects = &interceptedStore{store, func() {
		o.Objects = store
		if err := o.Revoke(t.Context(), "ci"); err != nil {
			t.Fatal(err)
		}
		o.issue("ci", nil)
	}}
	if err := o.Revoke(t.Context(), "ci"); !errors.Is(err, objects.ErrConflict) {
		t.Errorf("replaced meanwhile: %v", err)
	}
	if _, err := store.Get(t.Context(), key); err != nil {
		t.Errorf("another one is revoked: %v", err)
	}
}

func TestPrune(t *testing.T) {
	o := newTestGateway(t)
	for n := range prunePage + 2 { // more than a page
		if _, err := o.Objects.Create(t.Context(), fmt.Sprintf("%sold-%d", v1alpha1.PassPrefix, n), []byte(fmt.Sprintf(
			`{"status":{"expirationTimestamp":%q}}`, o.clock.Now().Add(time.Minute).UTC().Format(time.RFC3339)))); err != nil {
			t.Fatal(err)
		}
	}
	o.clock.Step(pruneAfter)
	expectRemaining := func(want ...string) {
		t.Helper()
		if err := o.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, err := o.List(t.Context())
		if err != nil || want == nil && len(all) != prunePage+2 || want != nil &&
			!slices.EqualFunc(all, want, func(p v1alpha1.Pass, name string) bool { return p.Name == name }) {
			t.Errorf("%d passes are left, %v", len(all), err)
		}
	}
	expectRemaining()
	o.clock.Step(2 * time.Minute)
	o.issue("next", nil)
	expectRemaining("next")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.Maintain(ctx, func(err error) { t.Errorf("its end is no failure: %v", err) })
}

func TestDocuments(t *testing.T) {
	o := newTestGateway(t)
	get := func(path string, into any) *http.Response {
		t.Helper()
		w := httptest.NewRecorder()
		done, err := o.Serve(w, httptest.NewRequest(http.MethodGet, path, nil), path)
		if !done || err != nil {
			t.Fatalf("%s: %v, %v", path, done, err)
		}
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatal(err)
		}
		return w.Result()
	}
	var d map[string]any
	get("/.well-known/openid-configuration", &d)
	want := map[string]any{
		"issuer": gatewayURL, "jwks_uri": gatewayURL + "/openid/v1/jwks", "response_types_supported": []any{"id_token"},
		"subject_types_supported": []any{"public"}, "id_token_signing_alg_values_supported": []any{"ES256"},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
	// Before any program has published keys, the response is an error, not an empty set.
	var keys jose.JSONWebKeySet
	jwks := httptest.NewRequest(http.MethodGet, "/openid/v1/jwks", nil)
	done, err := o.Serve(httptest.NewRecorder(), jwks, jwks.URL.Path)
	if !done || status.From(err).Reason != status.StoreUnavailable {
		t.Errorf("before the keys are published: %v, %v", done, err)
	}
	if err := o.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(keysFresh)
	if get("/openid/v1/jwks", &keys); len(keys.Keys) != 0 {
		t.Errorf("before the first pass: %+v", keys)
	}
	issued := o.issue("ci", nil)
	o.clock.Step(keysFresh)
	if resp := get("/openid/v1/jwks", &keys); resp.Header.Get("Content-Type") != "application/jwk-set+json" ||
		len(keys.Keys) != 1 || !keys.Keys[0].IsPublic() {
		t.Fatalf("%v %+v", resp.Header, keys)
	}
	parsed, err := jwt.ParseSigned(string(issued.Token.Reveal()), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var c jwt.Claims
	if err := parsed.Claims(keys, &c); err != nil || c.Subject != "ann" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, r := range []*http.Request{httptest.NewRequest(http.MethodPost, "/openid/v1/jwks", nil),
		httptest.NewRequest(http.MethodGet, "/openid/v1/jwks/", nil)} {
		if done, _ := o.Serve(httptest.NewRecorder(), r, r.URL.Path); done {
			t.Errorf("%s %s is answered", r.Method, r.URL)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(`{"alg":"ES256","kid":"x"}`, `{"iss":"`+gatewayURL+`","aud":"`+gatewayURL+
		`","exp":99999999999,"jti":"x","clusterpass.io/pass":"ci"}`, "c2ln")
	f.Add(`{"alg":"none"}`, `{"iss":"`+gatewayURL+`"}`, "")
	f.Add(`{"alg":"ES256","crit":["b64"],"b64":false}`, `{}`, "")
	v := NewVerifier(Config{Objects: noObjects{}, Secrets: noSecrets{}, URL: gatewayURL})
	f.Fuzz(func(t *testing.T, header, payload, signature string) {
		encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		token := encode(header) + "." + encode(payload) + "." + signature
		u, err := v.AuthenticateToken(t.Context(), token)
		if u != nil || err == nil && v.IsPass(token) {
			t.Errorf("%q %q: %+v, %v", header, payload, u, err)
		}
	})
}

type (
	noObjects struct{}
	noSecrets struct{}
)

func (noObjects) Get(context.Context, string) (objects.Object, error) {
	return objects.Object{}, objects.ErrNotFound
}

func (noSecrets) Get(context.Context, string) (*secrets.Secret, error) {
	return nil, secrets.ErrNotFound
}

// A revoked pass must stop working within RemoteFresh, also if the clock is set back.
func TestRevokedAfterTheClockIsSetBack(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	o.clock.Step(10 * time.Minute)
	if _, err := o.authenticate(issued); err != nil {
		t.Fatal(err)
	}
	o.clock.SetTime(o.clock.Now().Add(-5 * time.Minute))
	if err := o.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(RemoteFresh)
	if _, err := o.authenticate(issued); err == nil {
		t.Error("the pass works after its revocation")
	}
}
