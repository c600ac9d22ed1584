package passes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"github.com/clusterpass/clusterpass/shared/status"
)

// Verifiers outside of the gateway must find its public keys, and no private ones.
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
