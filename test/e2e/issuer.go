package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is an OpenID Connect provider. It signs each browser in as the user signsIn.
type Issuer struct {
	*httptest.Server
	key     *ecdsa.PrivateKey
	signsIn string
	SignIns atomic.Int32 // how often a browser opened the sign-in page
	Renewed atomic.Int32 // tokens that replaced others
	life    atomic.Int64 // nanoseconds, of the tokens for browsers
	renews  atomic.Bool
	codes   sync.Map // the query of each code, and of each refresh token
}

// SetTokenLife sets the life of the next tokens for browsers. canRenew adds a refresh token, which works once.
func (i *Issuer) SetTokenLife(life time.Duration, canRenew bool) {
	i.life.Store(int64(life))
	i.renews.Store(canRenew)
}

// TokenUntil returns a token of a user that expires at a time.
func (i *Issuer) TokenUntil(t *testing.T, user string, until time.Time) string {
	t.Helper()
	token, err := i.sign(user, until, "")
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*") // the console reads the discovery document and the token
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		writeJSON(w, http.StatusOK, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
			"token_endpoint":                        i.URL + "/token",
			"id_token_signing_alg_values_supported": []string{"ES256"}, "code_challenge_methods_supported": []string{"S256"},
		})
	case "/keys":
		writeJSON(w, http.StatusOK, jose.JSONWebKeySet{
			Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	case "/authorize":
		i.authorize(w, r)
	case "/token":
		i.redeem(w, r)
	default:
		http.NotFound(w, r)
	}
}

// redeem exchanges a code or a refresh token for a token, once. For a code, it checks the verifier of PKCE.
func (i *Issuer) redeem(w http.ResponseWriter, r *http.Request) {
	isCode := r.FormValue("grant_type") == "authorization_code"
	field, prefix := "refresh_token", refreshPrefix
	if isCode {
		field, prefix = "code", ""
	}
	query, ok := i.codes.LoadAndDelete(r.FormValue(field))
	if !ok || !strings.HasPrefix(r.FormValue(field), prefix) {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	q := query.(url.Values)
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if isCode && (r.FormValue("redirect_uri") != q.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != q.Get("code_challenge")) {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	life := time.Duration(i.life.Load())
	token, err := i.sign(i.signsIn, time.Now().Add(life), q.Get("nonce"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer := map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": int(life.Seconds()),
		"id_token": token}
	if i.renews.Load() {
		refresh := refreshPrefix + rand.Text()
		Secrets.Secret("a refresh token", refresh)
		i.codes.Store(refresh, q)
		answer["refresh_token"] = refresh
	}
	if !isCode {
		i.Renewed.Add(1)
	}
	writeJSON(w, http.StatusOK, answer)
}

// refreshPrefix begins each refresh token, so that a code is not one.
const refreshPrefix = "refresh-"

func (i *Issuer) authentication() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
	return fmt.Sprintf("oidc:\n- {url: %q, audiences: [%s], usernamePrefix: \"-\", clockSkew: 1s, ca: %q}\n", i.URL,
		clientID, ca)
}

// Token returns a token of a user.
func (i *Issuer) Token(t *testing.T, user string) string {
	t.Helper()
	return i.TokenUntil(t, user, time.Now().Add(time.Hour))
}

func (i *Issuer) sign(user string, until time.Time, nonce string) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "one"}},
		nil)
	if err != nil {
		return "", err
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: i.URL, Audience: jwt.Audience{clientID}, Subject: user,
		IssuedAt: jwt.NewNumericDate(time.Now()), Expiry: jwt.NewNumericDate(until),
	}).Claims(map[string]any{"nonce": nonce}).Serialize()
	if err == nil {
		Secrets.Secret("the token of "+user, token)
	}
	return token, err
}

// authorize signs a browser in at once, by the code flow with PKCE.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	redirect, err := url.Parse(q.Get("redirect_uri"))
	switch {
	case err != nil || redirect.Hostname() != "localhost" && redirect.Hostname() != "127.0.0.1":
		http.Error(w, "a redirect_uri to another machine", http.StatusBadRequest)
		return
	case q.Get("response_type") != "code" || q.Get("client_id") != clientID || q.Get("code_challenge_method") != "S256" ||
		!slices.Contains(strings.Fields(q.Get("scope")), "openid"):
		http.Error(w, "not a request of a client that is known here", http.StatusBadRequest)
		return
	}
	i.SignIns.Add(1)
	code := rand.Text()
	i.codes.Store(code, q)
	redirect.RawQuery = url.Values{"code": {code}, "state": q["state"]}.Encode()
	http.Redirect(w, r, redirect.String(), http.StatusFound)
}

// NewIssuer starts a provider that closes when the test ends.
func NewIssuer(t *testing.T, signsIn string) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{key: key, signsIn: signsIn}
	i.SetTokenLife(time.Hour, false)
	i.Server = httptest.NewTLSServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.Close)
	return i
}

// clientID is the gateway's at the provider, and the audience of its tokens.
const clientID = "clusterpass"

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
