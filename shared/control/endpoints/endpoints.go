// Package endpoints serves resources by the request handlers of k8s.io/apiserver. It does not use the server of that
// library, which links all admission plugins and the typed clients of every Kubernetes kind. They would make cold
// starts much longer.
//
// Invariant: the request.RequestInfo that was authorized alone chooses the handler, and the method must be that of its
// verb.
package endpoints

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
)

// Group is the resources of one version of an API group.
type Group struct {
	Version    schema.GroupVersion
	Serializer runtime.NegotiatedSerializer
	// Storage has the cluster-scoped resources by name, and their subresources as resource/subresource.
	Storage map[string]rest.Storage
}

// Config configures a Handler.
type Config struct {
	Scheme *runtime.Scheme
	Codecs runtime.NegotiatedSerializer // of errors for unknown resources
	Groups []Group
	// Authorizer decides about the second right that a request may need, such as create for an apply of a new object.
	Authorizer authorizer.Authorizer
	// Types returns the types of all groups, for field managers. The first write calls it.
	Types func() (managedfields.TypeConverter, error)
}

// Handler serves the requests for resources, whose request.RequestInfo is in their contexts. The caller authorizes them
// first.
type Handler struct {
	endpoints map[schema.GroupVersionResource]map[string]*endpoint // by subresource
	codecs    runtime.NegotiatedSerializer
}

// New returns a handler of cfg.Groups.
func New(cfg Config) (*Handler, error) {
	// A JSON patch could copy parts of the object until the process has no memory. All handlers share the limit.
	atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, maxBody)
	h := &Handler{endpoints: map[schema.GroupVersionResource]map[string]*endpoint{}, codecs: cfg.Codecs}
	types := sync.OnceValues(cfg.Types)
	for _, g := range cfg.Groups {
		for path, storage := range g.Storage {
			resource, subresource, _ := strings.Cut(path, "/")
			e, err := newEndpoint(&cfg, g, resource, subresource, storage, types)
			if err != nil {
				return nil, err
			}
			gvr := g.Version.WithResource(resource)
			if h.endpoints[gvr] == nil {
				h.endpoints[gvr] = map[string]*endpoint{}
			}
			h.endpoints[gvr][subresource] = e
		}
	}
	return h, nil
}

// Serves reports whether the handler has the resource of a request.
func (h *Handler) Serves(info *request.RequestInfo) bool { return h.endpoints[resourceOf(info)] != nil }

func resourceOf(info *request.RequestInfo) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		http.Error(w, "no RequestInfo is in the context of the request", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	gvr := resourceOf(info)
	e := h.endpoints[gvr][info.Subresource]
	if e == nil || info.Namespace != "" || len(info.Parts) > maxParts {
		responsewriters.ErrorNegotiated(newRefusal(http.StatusNotFound), h.codecs, gvr.GroupVersion(), w, r)
		return
	}
	serve, err := e.handler(info, r.Method)
	if err != nil {
		responsewriters.ErrorNegotiated(err, e.scope.Serializer, gvr.GroupVersion(), w, r)
		return
	}
	ctx := request.WithReceivedTimestamp(r.Context(), time.Now()) // for watches
	ctx = audit.WithAuditContext(ctx)                             // for patches
	to := &response{ResponseWriter: w}
	serve(to, r.WithContext(warning.WithWarningRecorder(ctx, &to.warnings)))
}

// newRefusal returns the error that the server of k8s.io/apiserver has for an unknown resource or verb.
func newRefusal(code int) error {
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false)
}

// maxParts counts the resource, the name and the subresource.
const maxParts = 3
