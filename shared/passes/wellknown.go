package passes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/go-jose/go-jose/v4"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/route"
)

// kube-apiserver has the same paths for its service account tokens.
const (
	discoveryPath = "/.well-known/openid-configuration"
	jwksPath      = "/openid/v1/jwks"
)

type discovery struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// Serve writes the document with that path, and reports whether there is one. With an error, it has written no
// response. The documents contain only public data and need no authentication.
func (v *Verifier) Serve(w http.ResponseWriter, r *http.Request, path string) (bool, error) {
	if v.cfg.URL == "" || !route.IsRead(r.Method) {
		return false, nil
	}
	var (
		document any
		kind     string
	)
	switch path {
	case discoveryPath:
		kind = "application/json"
		document = discovery{
			Issuer: v.cfg.URL, JWKSURI: v.cfg.URL + jwksPath, ResponseTypes: []string{"id_token"},
			SubjectTypes: []string{"public"}, Algorithms: []string{string(jose.ES256)},
		}
	case jwksPath:
		keys, err := v.public(r.Context())
		if err != nil {
			return true, err
		}
		kind, document = "application/jwk-set+json", keys
	default:
		return false, nil
	}
	body, err := json.Marshal(document)
	if err != nil {
		return true, err
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=20")
	_, _ = w.Write(body) // the client may be gone
	return true, nil
}

func (v *Verifier) public(ctx context.Context) (jose.JSONWebKeySet, error) {
	p, err := v.keys.Get(ctx, PassKeys)
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return jose.JSONWebKeySet{}, newUnpublishedError()
	case err != nil:
		return jose.JSONWebKeySet{}, unavailable("the keys that verify passes cannot be read", err)
	}
	return p.public(v.cfg.Now()), nil
}
