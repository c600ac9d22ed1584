package control

import (
	"encoding/json"
	"net/http"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/login"
	"github.com/clusterpass/clusterpass/shared/gateway"
)

// Public has the signature of gateway.Env.Public. It publishes the configured methods of authentication for login.
func (Options) Public(a gateway.Authentication) func(w http.ResponseWriter, r *http.Request, path string) bool {
	var methods login.Methods
	body, err := []byte(nil), yaml.Unmarshal([]byte(a.String()), &methods) // its other fields are not public
	if err == nil {
		body, err = json.Marshal(methods)
	}
	return func(w http.ResponseWriter, r *http.Request, path string) bool {
		if path != login.Path || err != nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=60")
		_, _ = w.Write(body) // the client may be gone
		return true
	}
}
