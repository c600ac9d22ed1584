package endpoints

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// endpoint serves one resource or subresource.
type endpoint struct {
	scope handlers.RequestScope // without a field manager
	verbs map[string]verb
}

type verb struct {
	method    string
	needsName bool
	handler   func() (http.HandlerFunc, error)
}

const (
	// minWatch is the minimum time of a watch without a timeout, as in Kubernetes. The maximum is twice as long.
	minWatch = 30 * time.Minute
	// maxBody bounds the body of a request, as in Kubernetes.
	maxBody = 3 << 20
)

var patchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType),
	string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}

func newEndpoint(cfg *Config, g Group, resource, subresource string, storage rest.Storage,
	types func() (managedfields.TypeConverter, error)) (*endpoint, error) {
	kind, err := kindOf(cfg.Scheme, g.Version, storage)
	if err != nil {
		return nil, err
	}
	e := &endpoint{verbs: map[string]verb{}, scope: handlers.RequestScope{
		Namer:      handlers.ContextBasedNaming{Namer: runtime.Namer(meta.NewAccessor()), ClusterScoped: true},
		Serializer: g.Serializer, ParameterCodec: runtime.NewParameterCodec(cfg.Scheme),
		Creater: cfg.Scheme, Convertor: cfg.Scheme, Defaulter: cfg.Scheme, Typer: cfg.Scheme,
		UnsafeConvertor:          runtime.UnsafeObjectConvertor(cfg.Scheme),
		EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
		Authorizer:               cfg.Authorizer,
		Resource:                 g.Version.WithResource(resource), Subresource: subresource, Kind: kind,
		HubGroupVersion:     schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal},
		MetaGroupVersion:    metav1.SchemeGroupVersion,
		MaxRequestBodyBytes: maxBody,
	}}
	e.scope.TableConvertor, _ = storage.(rest.TableConvertor)
	e.addVerbsWithoutFieldManager(storage)
	newScope := func() (*handlers.RequestScope, error) { return e.scopeWithFieldManager(storage, types) }
	e.addVerbsWithFieldManager(storage, sync.OnceValues(newScope))
	return e, nil
}

func kindOf(scheme *runtime.Scheme, version schema.GroupVersion,
	storage rest.Storage) (schema.GroupVersionKind, error) {
	obj := storage.New()
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	for _, kind := range kinds {
		if kind.GroupVersion() == version {
			return kind, nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("%T has no kind in %s", obj, version)
}

// addVerbsWithoutFieldManager adds the others.
func (e *endpoint) addVerbsWithoutFieldManager(storage rest.Storage) {
	add := func(name, method string, needsName bool, handler http.HandlerFunc) {
		e.verbs[name] = verb{method, needsName, func() (http.HandlerFunc, error) { return handler, nil }}
	}
	if s, ok := storage.(rest.Getter); ok {
		add("get", http.MethodGet, true, handlers.GetResource(s, &e.scope))
	}
	if s, ok := storage.(rest.Lister); ok {
		watcher, _ := storage.(rest.Watcher)
		add("list", http.MethodGet, false, handlers.ListResource(s, watcher, &e.scope, false, minWatch))
		if watcher != nil {
			add("watch", http.MethodGet, false, handlers.ListResource(s, watcher, &e.scope, true, minWatch))
		}
	}
	if s, ok := storage.(rest.GracefulDeleter); ok {
		add("delete", http.MethodDelete, true, handlers.DeleteResource(s, true, &e.scope, nil))
	}
	if s, ok := storage.(rest.CollectionDeleter); ok {
		add("deletecollection", http.MethodDelete, false, handlers.DeleteCollection(s, true, &e.scope, nil))
	}
}

// addVerbsWithFieldManager adds the verbs that record which fields a client manages.
func (e *endpoint) addVerbsWithFieldManager(storage rest.Storage, scope func() (*handlers.RequestScope, error)) {
	add := func(name, method string, needsName bool, handler func(*handlers.RequestScope) http.HandlerFunc) {
		e.verbs[name] = verb{method, needsName, func() (http.HandlerFunc, error) {
			to, err := scope()
			if err != nil {
				return nil, apierrors.NewInternalError(err)
			}
			return handler(to), nil
		}}
	}
	if s, ok := storage.(rest.Creater); ok {
		add("create", http.MethodPost, false,
			func(to *handlers.RequestScope) http.HandlerFunc { return handlers.CreateResource(s, to, nil) })
	}
	if s, ok := storage.(rest.Updater); ok {
		add("update", http.MethodPut, true,
			func(to *handlers.RequestScope) http.HandlerFunc { return handlers.UpdateResource(s, to, nil) })
	}
	if s, ok := storage.(rest.Patcher); ok {
		add("patch", http.MethodPatch, true,
			func(to *handlers.RequestScope) http.HandlerFunc {
				return handlers.PatchResource(s, to, nil, patchTypes)
			})
	}
}

func (e *endpoint) scopeWithFieldManager(storage rest.Storage, types func() (managedfields.TypeConverter, error)) (
	*handlers.RequestScope, error) {
	converter, err := types()
	if err != nil {
		return nil, err
	}
	var reset map[fieldpath.APIVersion]fieldpath.Filter
	if s, ok := storage.(rest.ResetFieldsStrategy); ok {
		reset = fieldpath.NewExcludeFilterSetMap(s.GetResetFields())
	}
	scope := e.scope
	scope.FieldManager, err = managedfields.NewDefaultFieldManager(converter, scope.UnsafeConvertor, scope.Defaulter,
		scope.Creater, scope.Kind, scope.HubGroupVersion, scope.Subresource, reset)
	return &scope, err
}

// handler returns the handler of a request, or an error if the resource does not have the verb.
func (e *endpoint) handler(info *request.RequestInfo, method string) (http.HandlerFunc, error) {
	v, ok := e.verbs[info.Verb]
	if !ok || v.method != method || v.needsName && info.Name == "" || info.Verb == "create" && info.Name != "" {
		return nil, newRefusal(http.StatusMethodNotAllowed)
	}
	return v.handler()
}
