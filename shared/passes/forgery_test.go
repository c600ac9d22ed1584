package passes

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// A token that the gateway did not issue as a pass must identify no user, and must never reach a member.
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
		"no key id":    {sign(jose.ES256, own.Key, good), "a key that the gateway does not have"},
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
			if !o.HasGatewayIssuer(tt.token) {
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
		if u, err := o.AuthenticateToken(t.Context(), token); u != nil || err != nil || o.HasGatewayIssuer(token) {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
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

// FuzzToken fails if a token without a valid signature identifies a user, or could reach a member.
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
		if u != nil || err == nil && v.HasGatewayIssuer(token) {
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
