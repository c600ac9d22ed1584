package control

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"sync"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// mergedOpenAPI remembers the last OpenAPI v2 document that was made of two: they are large, and seldom change.
type mergedOpenAPI struct {
	mu  sync.Mutex
	of  [sha256.Size]byte // the cluster's document
	mux *http.ServeMux
}

// openAPIv2 answers with the gateway's own OpenAPI v2 document united with the cluster's. Where both describe a path, the gateway's counts.
func (s *Server) openAPIv2(w http.ResponseWriter, r *http.Request) error {
	var both *http.ServeMux
	theirs := s.behind(w, r, func(body []byte) (err error) {
		both, err = s.merged.with(body, func() []byte { return s.ownDocument(r, "application/json").body.Bytes() })
		return err
	}, "application/json")
	if theirs == nil {
		s.handler.ServeHTTP(flusher{w}, r)
		return nil
	}
	both.ServeHTTP(w, r)
	return nil
}

// with returns what serves the two documents as one. Of calls that come together, one makes it.
func (m *mergedOpenAPI) with(theirs []byte, ours func() []byte) (*http.ServeMux, error) {
	sum := sha256.Sum256(theirs)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mux != nil && m.of == sum {
		return m.mux, nil
	}
	var own, other spec.Swagger
	if err := json.Unmarshal(ours(), &own); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(theirs, &other); err != nil {
		return nil, err
	}
	if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(&own, &other); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	handler.NewOpenAPIService(&own).RegisterOpenAPIVersionedService("/openapi/v2", mux)
	m.of, m.mux = sum, mux
	return mux, nil
}
