// Package documents contains discovery and OpenAPI of the gateway's own API, as the server of k8s.io/apiserver builds
// them. go generate ./shared/control/openapi writes the files, so that the gateway does not contain that server.
package documents

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Aggregated is the suffix of names of documents of aggregated discovery. The others are named by their paths.
const Aggregated = "?aggregated"

var (
	//go:embed discovery.json
	discovery []byte
	//go:embed openapi.v2.json
	openAPIv2 []byte
	//go:embed openapi.v3.json
	openAPIv3 []byte // by group version
)

var parseDiscovery = sync.OnceValues(func() (map[string]json.RawMessage, error) {
	var out map[string]json.RawMessage
	err := json.Unmarshal(discovery, &out)
	return out, err
})

// Discovery returns the JSON of a document of discovery. Callers must not change it.
func Discovery(name string) (json.RawMessage, error) {
	all, err := parseDiscovery()
	if err != nil {
		return nil, err
	}
	doc, ok := all[name]
	if !ok {
		return nil, fmt.Errorf("no document %s", name)
	}
	return doc, nil
}

// OpenAPI returns a handler of /openapi/v2, /openapi/v3 and the paths below it.
func OpenAPI() (http.Handler, error) {
	var v2 spec.Swagger
	if err := json.Unmarshal(openAPIv2, &v2); err != nil {
		return nil, err
	}
	v3, err := parseOpenAPIv3()
	if err != nil {
		return nil, err
	}
	mux := prefixMux{http.NewServeMux()}
	handler.NewOpenAPIService(&v2).RegisterOpenAPIVersionedService("/openapi/v2", mux)
	s := handler3.NewOpenAPIService()
	for path, doc := range v3 {
		s.UpdateGroupVersion(path, doc)
	}
	return mux, s.RegisterOpenAPIV3VersionedService("/openapi/v3", mux)
}

func parseOpenAPIv3() (map[string]*spec3.OpenAPI, error) {
	var out map[string]*spec3.OpenAPI
	err := json.Unmarshal(openAPIv3, &out)
	return out, err
}

// prefixMux is the interface that handler3 expects of a mux.
type prefixMux struct{ *http.ServeMux }

// HandlePrefix handles all paths below path, which ends with a slash.
func (m prefixMux) HandlePrefix(path string, h http.Handler) { m.Handle(path, h) }

// Types returns the types of all resources, for field managers.
func Types() (managedfields.TypeConverter, error) {
	docs, err := parseOpenAPIv3()
	if err != nil {
		return nil, err
	}
	schemas := map[string]*spec.Schema{}
	for _, doc := range docs {
		maps.Copy(schemas, doc.Components.Schemas)
	}
	return managedfields.NewTypeConverter(schemas, false)
}
