package control

import (
	"encoding/json"
	"net/http"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/login"
	"github.com/clusterpass/clusterpass/shared/route"
)

// loginMethods returns the public fields of an authentication document as JSON, or nil if the document is malformed.
func loginMethods(authentication string) []byte {
	var methods login.Methods
	if err := yaml.Unmarshal([]byte(authentication), &methods); err != nil {
		return nil
	}
	body, err := json.Marshal(methods)
	if err != nil {
		return nil
	}
	return body
}

// ServePublic implements gateway.API for the configured login methods.
func (s *Server) ServePublic(w http.ResponseWriter, r *http.Request, path string) bool {
	if path != login.Path || s.login == nil || !route.IsRead(r.Method) {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=60")
	_, _ = w.Write(s.login) // the client may be gone
	return true
}
