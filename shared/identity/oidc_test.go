package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

type provider struct {
	t    *testing.T
	url  string
	pool *x509.CertPool

	mu     sync.Mutex
	keys   map[string]crypto.Signer
	asked  map[string]int // by path
	answer func(w http.ResponseWriter, r *http.Request)
	issuer string // in discovery; "" means url
}

var (
	rsaKey = sync.OnceValue(func() crypto.Signer { k, _ := rsa.GenerateKey(rand.Reader, 2048); return k })
	rsaTwo = sync.OnceValue(func() crypto.Signer { k, _ := rsa.GenerateKey(rand.Reader, 2048); return k })
	ecKey  = sync.OnceValue(func() crypto.Signer { k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader); return k })
	edKey  = sync.OnceValue(func() crypto.Signer { _, k, _ := ed25519.GenerateKey(rand.Reader); return k })
)

func newProvider(t *testing.T) *provider {
	p := &provider{t: t, keys: map[string]crypto.Signer{"one": rsaKey()}, asked: map[string]int{}}
	s, pool := serve(t, p)
	p.url, p.pool = s.URL, pool
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.URL.Path]++
	if r.UserAgent() != version.UserAgent() {
		p.t.Errorf("%s is read with the User-Agent %q", r.URL.Path, r.UserAgent())
	}
	if p.answer != nil {
		p.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		issuer := p.url
		if p.issuer != "" {
			issuer = p.issuer
		}
		// HS256 in this list must not make the gateway accept it.
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["HS256","none","RS256"]}`,
			issuer, p.url+"/keys")
	case "/keys":
		set := jose.JSONWebKeySet{}
		for id, k := range p.keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Public(), KeyID: id, Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	default:
		http.NotFound(w, r)
	}
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time         { return time.Unix(0, c.at.Load()) }
func (c *clock) pass(d time.Duration)   { c.at.Add(int64(d)) }
func (c *clock) in(d time.Duration) any { return c.now().Add(d).Unix() }

// claims returns the claims of a valid token with changes. A nil value removes a claim.
func (p *provider) claims(c *clock, changes map[string]any) map[string]any {
	out := map[string]any{
		"iss": p.url, "aud": "gateway", "sub": "17", "exp": c.in(time.Hour), "iat": c.in(0),
		"email": "ann@example.com", "groups": []string{"dev", "ops"}, "team": "blue",
	}
	for k, v := range changes {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func (p *provider) oidc(c *clock, change func(*Issuer)) *OIDC {
	p.t.Helper()
	i := Issuer{URL: p.url, Audiences: []string{"other", "gateway"}, CA: p.pool, UsernameClaim: "email",
		GroupsClaim: "groups"}
	if change != nil {
		change(&i)
	}
	o, err := NewOIDC([]Issuer{i}, c.now)
	if err != nil {
		p.t.Fatal(err)
	}
	return patient(o)
}

func patient(o *OIDC) *OIDC {
	for _, i := range o.issuers {
		i.keys.client.Timeout = patience
		base := i.keys.client.Transport.(*documents).base.(*http.Transport)
		base.ResponseHeaderTimeout, base.TLSHandshakeTimeout = patience, patience
	}
	return o
}

type oidcCase struct {
	issuer  func(*Issuer)
	claims  map[string]any // changes; the user expires with the token and a minute of skew
	want    *User
	wantErr string // %s is the issuer
}

func mapOf(kv ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i].(string)] = kv[i+1]
	}
	return out
}

func oidcCases(p *provider, c *clock) map[string]oidcCase {
	m := mapOf
	return map[string]oidcCase{
		"good": {want: &User{Name: "ann@example.com", Groups: []string{"dev", "ops"}}},
		"no prefix by default, by email": {issuer: func(i *Issuer) { i.UsernamePrefix = "" },
			want: &User{Name: "ann@example.com", Groups: []string{"dev", "ops"}}},
		"a prefix by default, by another claim": {issuer: func(i *Issuer) { i.UsernameClaim, i.UsernamePrefix = "sub", "" },
			want: &User{Name: p.url + "#17", Groups: []string{"dev", "ops"}}},
		"subject by default": {issuer: func(i *Issuer) { i.UsernameClaim, i.GroupsClaim = "", "" },
			want: &User{Name: p.url + "#17"}},
		"prefixes": {issuer: func(i *Issuer) { i.UsernamePrefix, i.GroupsPrefix = "u:", "g:" },
			want: &User{Name: "u:ann@example.com", Groups: []string{"g:dev", "g:ops"}}},
		"no prefix": {issuer: func(i *Issuer) { i.UsernameClaim, i.UsernamePrefix = "sub", "-" },
			want: &User{Name: "17", Groups: []string{"dev", "ops"}}},
		"several audiences": {claims: m("aud", []string{"x", "gateway"}),
			want: &User{Name: "ann@example.com", Groups: []string{"dev", "ops"}}},
		"another audience": {claims: m("aud", "gateway2"),
			wantErr: "the token of %s is for another audience than this gateway"},
		"no audience": {claims: m("aud", nil),
			wantErr: "the token of %s is for another audience than this gateway"},
		"expired": {claims: m("exp", c.in(-2*time.Minute)),
			wantErr: "the token of %s has expired; get a new one"},
		"expired by the skew": {claims: m("exp", c.in(-time.Minute)),
			wantErr: "the token of %s has expired; get a new one"},
		"expired within the skew": {claims: m("exp", c.in(-59*time.Second)),
			want: &User{Expires: c.now().Add(time.Second), Name: "ann@example.com", Groups: []string{"dev", "ops"}}},
		"expired within a wider skew": {issuer: func(i *Issuer) { i.Skew = 3 * time.Minute },
			claims: m("exp", c.in(-2*time.Minute)), want: &User{Expires: c.now().Add(time.Minute), Name: "ann@example.com",
				Groups: []string{"dev", "ops"}}},
		"no expiry":     {claims: m("exp", nil), wantErr: "the token of %s has expired; get a new one"},
		"an odd expiry": {claims: m("exp", "never"), wantErr: "the token of %s is invalid"},
		"not yet valid": {claims: m("nbf", c.in(2*time.Minute)), wantErr: "the token of %s is not valid yet"},
		"soon valid": {claims: m("nbf", c.in(50*time.Second)),
			want: &User{Name: "ann@example.com", Groups: []string{"dev", "ops"}}},
		"an odd beginning": {claims: m("nbf", "now"), wantErr: "the token of %s is invalid"},
		"a required claim": {issuer: func(i *Issuer) { i.RequiredClaims = map[string]string{"team": "blue"} },
			want: &User{Name: "ann@example.com", Groups: []string{"dev", "ops"}}},
		"another required claim": {issuer: func(i *Issuer) { i.RequiredClaims = map[string]string{"team": "red"} },
			wantErr: "the token of %s lacks a required claim"},
		"no required claim": {issuer: func(i *Issuer) { i.RequiredClaims = map[string]string{"x": ""} },
			wantErr: "the token of %s lacks a required claim"},
		"a required claim's list": {issuer: func(i *Issuer) { i.RequiredClaims = map[string]string{"team": "red"} },
			claims: m("team", []string{"red"}), wantErr: "the token of %s lacks a required claim"},
		"a verified email": {claims: m("email_verified", true),
			want: &User{Name: "ann@example.com", Groups: []string{"dev", "ops"}}},
		"an unverified email": {claims: m("email_verified", false),
			wantErr: "the token of %s has an email address that is not verified"},
		"an email verified, as text": {claims: m("email_verified", "true"),
			wantErr: "the token of %s has an email address that is not verified"},
		"no user": {claims: m("email", nil),
			wantErr: `the token of %s has no claim "email" for the user name`},
		"an empty user": {claims: m("email", ""), wantErr: `the token of %s has no claim "email" for the user name`},
		"a user that is null": {issuer: func(i *Issuer) { i.UsernameClaim = "x" },
			claims: m("x", json.RawMessage("null")), wantErr: `the token of %s has no claim "x" for the user name`},
		"a user that is a number": {
			claims:  m("email", 17),
			wantErr: `the token of %s has no claim "email" for the user name`,
		},
		"a system user": {claims: m("email", "system:admin"),
			wantErr: "the user name in the token of %s cannot be used: names that begin with system: are Kubernetes' own"},
		"a system user by prefix": {issuer: func(i *Issuer) { i.UsernamePrefix = "system:" },
			wantErr: "the user name in the token of %s cannot be used: names that begin with system: are Kubernetes' own"},
		"a user with a line break": {claims: m("email", "a\nb"),
			wantErr: "the user name in the token of %s cannot be used: it has invalid characters"},
		"system groups": {claims: m("groups", []string{"system:masters", "dev", "", "a\n"}),
			want: &User{Name: "ann@example.com", Groups: []string{"dev"}}},
		"system groups by prefix": {issuer: func(i *Issuer) { i.GroupsPrefix = "system:" },
			want: &User{Name: "ann@example.com"}},
		"no groups":            {claims: m("groups", nil), want: &User{Name: "ann@example.com"}},
		"groups that are null": {claims: m("groups", json.RawMessage("null")), want: &User{Name: "ann@example.com"}},
		"one group":            {claims: m("groups", "dev"), want: &User{Name: "ann@example.com", Groups: []string{"dev"}}},
		"groups of another form": {claims: m("groups", []int{1}),
			wantErr: `claim "groups" in the token of %s is no list of groups`},
	}
}

func TestOIDC(t *testing.T) {
	p := newProvider(t)
	p.keys["ec"], p.keys["ed"] = ecKey(), edKey()
	c := newClock()
	for name, tt := range oidcCases(p, c) {
		t.Run(name, func(t *testing.T) {
			u, err := p.oidc(c, tt.issuer).AuthenticateToken(t.Context(),
				sign(t, jose.RS256, rsaKey(), "one", p.claims(c, tt.claims)))
			if tt.wantErr != "" {
				wantRefused(t, u, err, fmt.Sprintf(tt.wantErr, p.url))
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Method = "oidc"
			if tt.want.Expires.IsZero() {
				tt.want.Expires = c.now().Add(time.Hour + time.Minute)
			}
			// time.Time is compared as an instant.
			tt.want.Expires, u.Expires = tt.want.Expires.UTC(), u.Expires.UTC()
			if diff := cmp.Diff(tt.want, u); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOIDCSignatures(t *testing.T) {
	p := newProvider(t)
	p.keys["ec"], p.keys["ed"] = ecKey(), edKey()
	c := newClock()
	o := p.oidc(c, nil)
	good := p.claims(c, nil)
	pub, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})
	body, _ := json.Marshal(good)
	b64 := base64.RawURLEncoding.EncodeToString
	signed := sign(t, jose.RS256, rsaKey(), "one", good)
	parts := strings.Split(signed, ".")
	other, _ := json.Marshal(p.claims(c, map[string]any{"email": "eve@example.com"}))
	embedded, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: rsaTwo()},
		&jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	jws, err := embedded.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	own, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		token string
		ok    bool
	}{
		"RS256":                          {signed, true},
		"PS512":                          {sign(t, jose.PS512, rsaKey(), "one", good), true},
		"ES256":                          {sign(t, jose.ES256, ecKey(), "ec", good), true},
		"EdDSA":                          {sign(t, jose.EdDSA, edKey(), "ed", good), true},
		"without a key id":               {sign(t, jose.RS256, rsaKey(), "", good), true},
		"another key":                    {sign(t, jose.RS256, rsaTwo(), "one", good), false},
		"another key, unknown id":        {sign(t, jose.RS256, rsaTwo(), "two", good), false},
		"the right key under another id": {sign(t, jose.RS256, rsaKey(), "ec", good), false},
		"its own key":                    {own, false},
		"none":                           {b64([]byte(`{"alg":"none"}`)) + "." + b64(body) + ".", false},
		"None":                           {b64([]byte(`{"alg":"None","kid":"one"}`)) + "." + b64(body) + ".", false},
		"none with a signature": {b64([]byte(`{"alg":"none","kid":"one"}`)) + "." + b64(body) + "." +
			parts[2], false},
		"HS256 with the public key":       {sign(t, jose.HS256, publicPEM, "one", good), false},
		"HS256 with the public key's DER": {sign(t, jose.HS256, pub, "one", good), false},
		"other claims":                    {parts[0] + "." + b64(other) + "." + parts[2], false},
		"no signature":                    {parts[0] + "." + parts[1] + ".", false},
		"an odd header":                   {b64([]byte(`{`)) + "." + parts[1] + "." + parts[2], false},
		"an unknown critical header": {b64([]byte(`{"alg":"RS256","crit":["x"],"x":1}`)) + "." + parts[1] + "." +
			parts[2], false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			u, err := o.AuthenticateToken(t.Context(), tt.token)
			if tt.ok {
				if err != nil || u.Name != "ann@example.com" {
					t.Errorf("%+v, %v", u, err)
				}
				return
			}
			wantRefused(t, u, err, "the token of "+p.url+" is invalid")
		})
	}
	if n := p.count("/keys"); n != 1 {
		t.Errorf("the keys were asked for %d times: tokens that do not hold cost the provider calls", n)
	}
}

func TestOIDCOfOthers(t *testing.T) {
	p, q := newProvider(t), newProvider(t)
	c := newClock()
	o, err := NewOIDC([]Issuer{
		{URL: p.url, Audiences: []string{"gateway"}, CA: p.pool}, {URL: q.url, Audiences: []string{"q"}, CA: q.pool},
	}, c.now)
	if err != nil {
		t.Fatal(err)
	}
	if p.count("/.well-known/openid-configuration") != 0 {
		t.Error("the provider is asked before there is a token")
	}
	patient(o)
	q.keys = map[string]crypto.Signer{"two": rsaTwo()}
	for name, token := range map[string]string{
		"an unknown issuer": sign(t, jose.RS256, rsaKey(), "one", p.claims(c, map[string]any{"iss": "https://x"})),
		"a slash more":      sign(t, jose.RS256, rsaKey(), "one", p.claims(c, map[string]any{"iss": p.url + "/"})),
		"no issuer":         sign(t, jose.RS256, rsaKey(), "one", p.claims(c, map[string]any{"iss": nil})),
		"no JWT":            "abc", "not base64": "a.!.c", "not JSON": "a.YQ.c", "an AWS token": "k8s-aws-v1.abc",
	} {
		if u, err := o.AuthenticateToken(t.Context(), token); u != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
	own := sign(t, jose.RS256, rsaTwo(), "two", q.claims(c, map[string]any{"aud": "q"}))
	for name, tt := range map[string]struct {
		change map[string]any
		want   bool
	}{
		"own":                {map[string]any{"aud": "q"}, true},
		"among others":       {map[string]any{"aud": []string{"kubernetes", "q"}}, true},
		"a member's":         {map[string]any{"aud": "kubernetes"}, false},
		"members'":           {map[string]any{"aud": []string{"kubernetes", "x"}}, false},
		"no audience":        {map[string]any{"aud": nil}, false},
		"a strange audience": {map[string]any{"aud": 17}, true},
		"another issuer":     {map[string]any{"aud": "q", "iss": "https://x"}, false},
	} {
		if got := o.IsForGateway(sign(t, jose.RS256, rsaTwo(), "two", q.claims(c, tt.change))); got != tt.want {
			t.Errorf("%s: is for the gateway: %v", name, got)
		}
	}
	if o.IsForGateway("abc") {
		t.Error("what is no token is for the gateway")
	}
	u, err := o.AuthenticateToken(t.Context(), own)
	if err != nil || u.Name != q.url+"#17" {
		t.Errorf("%+v, %v", u, err)
	}
	// A key of one provider does not verify tokens of another.
	u, err = o.AuthenticateToken(t.Context(), sign(t, jose.RS256, rsaTwo(), "two", p.claims(c, nil)))
	wantRefused(t, u, err, "the token of "+p.url+" is invalid")
}

func TestOIDCRollover(t *testing.T) {
	p := newProvider(t)
	c := newClock()
	o := p.oidc(c, nil)
	authenticate := func(key crypto.Signer, id string) error {
		_, err := o.AuthenticateToken(t.Context(), sign(t, jose.RS256, key, id, p.claims(c, nil)))
		return err
	}
	if err := authenticate(rsaKey(), "one"); err != nil {
		t.Fatal(err)
	}
	p.set(func() { p.keys["two"] = rsaTwo() })
	c.pass(keyPause)
	// go-oidc may still answer from the fetch of the first token, until its goroutine has ended.
	waittest.UntilNoError(t, "the new key is known", func(context.Context) error { return authenticate(rsaTwo(), "two") })
	if err := authenticate(rsaKey(), "one"); err != nil {
		t.Errorf("the old key: %v", err)
	}
	p.set(func() { delete(p.keys, "one") })
	c.pass(keyAge)
	if err := authenticate(rsaKey(), "one"); err == nil {
		t.Error("a key that was taken back holds")
	}
	if err := authenticate(rsaTwo(), "two"); err != nil {
		t.Errorf("the new key: %v", err)
	}
}

func TestOIDCOutage(t *testing.T) {
	p := newProvider(t)
	c := newClock()
	o := p.oidc(c, nil)
	authenticate := func() (*User, error) {
		return o.AuthenticateToken(t.Context(), sign(t, jose.RS256, rsaKey(), "one", p.claims(c, nil)))
	}
	down := "the keys of the identity provider " + p.url + " cannot be read now; try again"
	fail := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"an error": fail,
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"too much": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxDocument+1)) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/keys", http.StatusFound)
		},
		"a break": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"an http key set": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.url, strings.Replace(p.url, "https", "http", 1)+"/keys")
		},
		"another issuer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"issuer":"https://x","jwks_uri":%q}`, p.url+"/keys")
		},
	} {
		o = p.oidc(c, nil)
		p.set(func() { p.answer = answer })
		u, err := authenticate()
		t.Log(name)
		wantDown(t, u, err, down)
	}
	p.set(func() { p.answer = nil })
	c.pass(keyPause)
	o = p.oidc(c, nil)
	if _, err := authenticate(); err != nil {
		t.Fatal(err)
	}
	p.set(func() { p.answer = fail })
	for range 5 {
		c.pass(keyOutage / 6)
		if _, err := authenticate(); err != nil {
			t.Fatalf("with the keys that it had: %v", err)
		}
	}
	c.pass(keyOutage / 6)
	u, err := authenticate()
	wantDown(t, u, err, down)
	p.set(func() { p.answer = nil })
	c.pass(keyPause)
	if _, err := authenticate(); err != nil {
		t.Errorf("up again: %v", err)
	}
}

func TestOIDCSlow(t *testing.T) {
	p := newProvider(t)
	c := newClock()
	release := make(chan struct{})
	p.set(func() { p.answer = func(http.ResponseWriter, *http.Request) { <-release } })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u, err := p.oidc(c, nil).AuthenticateToken(ctx, sign(t, jose.RS256, rsaKey(), "one", p.claims(c, nil)))
	wantDown(t, u, err, "the keys of the identity provider "+p.url+" cannot be read now; try again")
	close(release)
}

func TestOIDCUntrusted(t *testing.T) {
	p := newProvider(t)
	c := newClock()
	o := p.oidc(c, func(i *Issuer) { i.CA = x509.NewCertPool() })
	u, err := o.AuthenticateToken(t.Context(), sign(t, jose.RS256, rsaKey(), "one", p.claims(c, nil)))
	wantDown(t, u, err, "the keys of the identity provider "+p.url+" cannot be read now; try again")
}

func TestNewOIDC(t *testing.T) {
	good := Issuer{URL: "https://x", Audiences: []string{"a"}}
	for want, change := range map[string]func(*Issuer){
		`issuer "http://x": want an https URL without query, such as https://accounts.example.com`: func(i *Issuer) {
			i.URL = "http://x"
		},
		`issuer "": want an https URL without query, such as https://accounts.example.com`: func(i *Issuer) {
			i.URL = ""
		},
		`issuer "https://x?a": want an https URL without query, such as https://accounts.example.com`: func(i *Issuer) {
			i.URL = "https://x?a"
		},
		`issuer https://x: want the audiences that its tokens have for this gateway`: func(i *Issuer) { i.Audiences = nil },
		`issuer https://x: skew 1h0m0s, want at most 5m`:                             func(i *Issuer) { i.Skew = time.Hour },
		`issuer https://y: is configured twice`:                                      func(i *Issuer) { i.URL = "https://y" },
	} {
		i := good
		change(&i)
		if _, err := NewOIDC([]Issuer{{URL: "https://y", Audiences: []string{"a"}}, i}, nil); err == nil ||
			err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func FuzzOIDC(f *testing.F) {
	t := &testing.T{}
	p := &provider{t: t, url: "https://issuer.test", keys: map[string]crypto.Signer{}, asked: map[string]int{}}
	c := newClock()
	f.Add(sign(t, jose.RS256, rsaKey(), "one", p.claims(c, nil)))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		o, err := NewOIDC([]Issuer{{URL: p.url, Audiences: []string{"gateway"}}}, c.now)
		if err != nil {
			t.Fatal(err)
		}
		// The provider has no key. Every signature is wrong, so that the fuzzer tests the parser.
		docs := o.issuers[p.url].keys.client.Transport.(*documents)
		docs.known = map[string]*document{
			p.url + "/.well-known/openid-configuration": {asked: c.now(), at: c.now(),
				header: http.Header{"Content-Type": {"application/json"}},
				body:   []byte(`{"issuer":"https://issuer.test","jwks_uri":"https://issuer.test/keys"}`)},
			p.url + "/keys": {asked: c.now(), at: c.now(), header: http.Header{"Content-Type": {"application/json"}},
				body: []byte(`{"keys":[]}`)},
		}
		if u, err := o.AuthenticateToken(t.Context(), token); u != nil ||
			(err != nil) != strings.Contains(fmt.Sprint(err), "is invalid") {
			t.Errorf("%+v, %v", u, err)
		}
	})
}
