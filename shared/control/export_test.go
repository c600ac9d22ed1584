package control

import (
	"context"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	restclient "k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/clusterpass/clusterpass/shared/control/openapi"
	"github.com/clusterpass/clusterpass/shared/control/registry"
)

// AggregatedType is the media type of aggregated discovery.
const AggregatedType = aggregatedType

// WithCaller adds a caller to a context.
var WithCaller = withCaller

// Roles returns another registry of roles in the same storage.
func (s *Server) Roles() *registry.Store { return s.roles().Store }

// Resources returns the handler of the resources of s.
func (s *Server) Resources() http.Handler {
	return filters.WithRequestInfo(s.resources, s.requests)
}

// Reference returns a server of k8s.io/apiserver with the resources of s. Those without checks of their own are in the
// registry of that library.
func (s *Server) Reference(t *testing.T) http.Handler {
	t.Helper()
	c := genericapiserver.NewConfig(s.codecs)
	c.ExternalAddress = "clusterpass:443" // for discovery by old clients, which never dial it
	c.LoopbackClientConfig = &restclient.Config{}
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	c.EnableIndex, c.EnableProfiling, c.EnableMetrics = false, false, false
	c.DisabledPostStartHooks.Insert("max-in-flight-filter", "storage-object-count-tracker-hook") // no hook is started
	c.Authorization.Authorizer = applyAuthorizer{s}
	names := apiopenapi.NewDefinitionNamer(servedScheme(s.cfg.MaxPassTTL))
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, names)
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, names)
	c.OpenAPIConfig.Info.Title, c.OpenAPIV3Config.Info.Title = "Clusterpass", "Clusterpass"
	c.BuildHandlerChainFunc = func(h http.Handler, c *genericapiserver.Config) http.Handler {
		h = filters.WithWarningRecorder(h)
		h = filters.WithCacheControl(h)
		h = filters.WithAuditInit(h)
		h = filters.WithRequestReceivedTimestamp(h)
		return filters.WithRequestInfo(h, genericapiserver.NewRequestInfoResolver(c))
	}
	server, err := c.Complete(nil).New("reference", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	var groups []*genericapiserver.APIGroupInfo
	for _, g := range s.groups() {
		for path, storage := range g.Storage {
			g.Storage[path] = libraryStorage(t, storage)
		}
		info := genericapiserver.NewDefaultAPIGroupInfo(g.Version.Group, s.scheme, runtime.NewParameterCodec(s.scheme),
			s.codecs)
		info.NegotiatedSerializer = g.Serializer
		info.VersionedResourcesStorageMap[g.Version.Version] = g.Storage
		groups = append(groups, &info)
	}
	if err := server.InstallAPIGroups(groups...); err != nil {
		t.Fatal(err)
	}
	server.PrepareRun()
	return server.Handler
}

// CountOpenAPI returns a function that returns how many requests needed OpenAPI.
func (s *Server) CountOpenAPI() func() int {
	n, next := 0, s.openAPI
	var mu sync.Mutex
	s.openAPI = func() (http.Handler, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		return next()
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func libraryStorage(t *testing.T, storage rest.Storage) rest.Storage {
	t.Helper()
	switch s := storage.(type) {
	case *stored:
		return &libraryStore{libraryRegistry(t, s.Store), s.shortNames}
	case *guarded:
		return &libraryStore{libraryRegistry(t, s.Store), s.shortNames}
	case *status:
		return &libraryStatus{libraryRegistry(t, &s.store)}
	}
	return storage
}

func libraryRegistry(t *testing.T, s *registry.Store) *genericregistry.Store {
	t.Helper()
	out := &genericregistry.Store{
		NewFunc: s.NewObject, NewListFunc: s.NewListObject, DefaultQualifiedResource: s.Resource(),
		SingularQualifiedResource: schema.GroupResource{Group: s.Version.Group, Resource: s.Singular},
		KeyRootFunc:               func(context.Context) string { return s.Plural },
		KeyFunc:                   func(_ context.Context, name string) (string, error) { return s.Plural + "/" + name, nil },
		CreateStrategy:            s.Strategy, UpdateStrategy: s.Strategy, DeleteStrategy: s.Strategy,
		ResetFieldsStrategy: s.Strategy, TableConvertor: s.TableConvertor,
		Storage:          genericregistry.DryRunnableStorage{Storage: s.Storage, Codec: s.Codec},
		StorageVersioner: s.Version, DeleteCollectionWorkers: 1,
	}
	err := out.CompleteWithOptions(&generic.StoreOptions{RESTOptions: generic.RESTOptions{ResourcePrefix: s.Plural}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type libraryStore struct {
	*genericregistry.Store
	shortNames []string
}

func (s *libraryStore) ShortNames() []string { return s.shortNames }

type libraryStatus struct{ store *genericregistry.Store }

func (s *libraryStatus) New() runtime.Object { return s.store.New() }

func (*libraryStatus) Destroy() {}

func (s *libraryStatus) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, opts)
}

func (s *libraryStatus) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool,
	opts *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, createValidation, updateValidation, false, opts)
}

func (s *libraryStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

func (s *libraryStatus) ConvertToTable(ctx context.Context, obj, opts runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, opts)
}
