package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/healthz"
	kubeversion "k8s.io/component-base/version"

	"github.com/clusterpass/clusterpass/shared/control/documents"
	gatewaystatus "github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

// newPaths returns the handlers of the gateway's own paths that are no resources.
func (s *Server) newPaths() map[string]http.Handler {
	openAPI := http.HandlerFunc(s.serveOpenAPI)
	paths := map[string]http.Handler{
		"/":    nil, // 404, and not the page of the control-plane cluster
		"/api": serveDiscovery[metav1.APIVersions](s, "/api"), "/apis": serveDiscovery[metav1.APIGroupList](s, "/apis"),
		"/version":    http.HandlerFunc(serveVersion),
		"/openapi/v2": openAPI, "/openapi/v3": openAPI,
	}
	for _, g := range servedGroups {
		group, version := "/apis/"+g.version.Group, "/apis/"+g.version.String()
		paths[group] = serveDiscovery[metav1.APIGroup](s, group)
		paths[version] = serveDiscovery[metav1.APIResourceList](s, version)
		paths["/openapi/v3"+version] = openAPI
	}
	alive := []healthz.HealthChecker{healthz.PingHealthz}
	ready := append(alive, healthz.NamedCheck("objects", func(r *http.Request) error {
		_, err := s.cfg.Objects.Revision(r.Context())
		return err
	}))
	for path, checks := range map[string][]healthz.HealthChecker{"/livez": alive, "/healthz": alive, "/readyz": ready} {
		mux := http.NewServeMux()
		healthz.InstallPathHandler(mux, path, checks...)
		paths[path] = mux
	}
	return paths
}

// documentPath returns the key of a path in Server.paths.
func documentPath(path string) string { return "/" + strings.Trim(path, "/") }

// serveOwn serves a path as if there were no control-plane cluster.
func (s *Server) serveOwn(w http.ResponseWriter, r *http.Request) error {
	h := s.paths[documentPath(r.URL.Path)]
	if h == nil {
		return gatewaystatus.New(gatewaystatus.UnknownPath, "",
			"the gateway itself has nothing at %s; member clusters are under /clusters/NAME", r.URL.Path)
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	h.ServeHTTP(w, r)
	return nil
}

// serveDiscovery serves a document of discovery in the representation that the client prefers.
func serveDiscovery[T any, Object interface {
	*T
	k8sruntime.Object
}](s *Server, path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if doc, err := documents.Discovery(path + documents.Aggregated); err == nil && acceptsAggregated(r) {
			w.Header().Set("Content-Type", aggregatedType)
			_, _ = w.Write(doc) // the client may be gone
			return
		}
		obj := Object(new(T))
		doc, err := documents.Discovery(path)
		if err == nil {
			err = json.Unmarshal(doc, obj)
		}
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		responsewriters.WriteObjectNegotiated(s.codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r,
			http.StatusOK, obj, false)
	}
}

func (s *Server) serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	h, err := s.openAPI()
	if err != nil {
		responsewriters.InternalError(w, r, err)
		return
	}
	h.ServeHTTP(w, r)
}

func serveVersion(w http.ResponseWriter, _ *http.Request) {
	major, minor, _ := strings.Cut(kubeversion.DefaultKubeBinaryVersion, ".")
	build := version.Get()
	responsewriters.WriteRawJSON(http.StatusOK, apimachineryversion.Info{
		Major: major, Minor: minor, GitVersion: build.GitVersion(fmt.Sprintf("v%s.%s.0", major, minor)),
		GitCommit: build.Revision, GitTreeState: build.TreeState(), BuildDate: build.Date,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}, w)
}
