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

// mergedOpenAPI caches the last merged OpenAPI v2 document, which is large and seldom changes.
type mergedOpenAPI struct {
	mu  sync.Mutex
	of  [sha256.Size]byte // hash of the cluster's document
	mux *http.ServeMux
}

// openAPIv2 serves a document in which the gateway's description of a path wins over the cluster's.
func (s *Server) openAPIv2(w http.ResponseWriter, r *http.Request) error {
	var both *http.ServeMux
	clusterDoc := s.clusterDocument(w, r, func(body []byte) (err error) {
		both, err = s.merged.with(body, func() ([]byte, error) { return s.ownDocument(r, "application/json") })
		return err
	}, "application/json")
	if clusterDoc == nil {
		return s.serveOwn(w, r)
	}
	both.ServeHTTP(w, r)
	return nil
}

// with returns a handler of the merged document. Concurrent callers merge it once.
func (m *mergedOpenAPI) with(clusterDoc []byte, ownDoc func() ([]byte, error)) (*http.ServeMux, error) {
	sum := sha256.Sum256(clusterDoc)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mux != nil && m.of == sum {
		return m.mux, nil
	}
	var own, other spec.Swagger
	doc, err := ownDoc()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(doc, &own); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(clusterDoc, &other); err != nil {
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
