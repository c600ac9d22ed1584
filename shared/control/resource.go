package control

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/clusterpass/clusterpass/shared/control/backend"
)

type resource struct {
	group            schema.GroupVersion
	plural, singular string
	newObject        func() runtime.Object
	newList          func() runtime.Object
	strategy         *strategy
	columns          table
}

type stored struct {
	*registry.Store
	shortNames []string
}

func (s *stored) ShortNames() []string { return s.shortNames }

type createdKey struct{}

// Create records the object's name, which may be generated, for the audit log.
func (s *stored) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	opts *metav1.CreateOptions) (runtime.Object, error) {
	out, err := s.Store.Create(ctx, obj, validate, opts)
	if name, ok := ctx.Value(createdKey{}).(*atomic.Pointer[string]); ok {
		if err == nil {
			obj = out // obj itself lacks a generated name
		}
		if m, merr := meta.Accessor(obj); merr == nil {
			n := m.GetName()
			name.Store(&n)
		}
	}
	return out, err
}

func (s *stored) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceCreate bool, opts *metav1.UpdateOptions) (runtime.Object,
	bool, error) {
	return s.Store.Update(ctx, name, unquoted{info}, createValidation, updateValidation, forceCreate, opts)
}

func (s *Server) store(r resource, shortNames ...string) (*stored, error) {
	codec := s.codecs.LegacyCodec(r.group) // JSON of the served version
	gr := schema.GroupResource{Group: r.group.Group, Resource: r.plural}
	store := &registry.Store{
		NewFunc: r.newObject, NewListFunc: r.newList,
		DefaultQualifiedResource:  gr,
		SingularQualifiedResource: schema.GroupResource{Group: r.group.Group, Resource: r.singular},
		KeyRootFunc:               func(context.Context) string { return r.plural },
		KeyFunc: func(_ context.Context, name string) (string, error) {
			if problems := content.IsPathSegmentName(name); name == "" || len(problems) > 0 {
				return "",
					apierrors.NewBadRequest(fmt.Sprintf("the name %q cannot be used: it must be one segment of a path", name))
			}
			return r.plural + "/" + name, nil
		},
		CreateStrategy: r.strategy, UpdateStrategy: r.strategy, DeleteStrategy: r.strategy, ResetFieldsStrategy: r.strategy,
		TableConvertor: r.columns,
		Storage: registry.DryRunnableStorage{Storage: backend.New(s.cfg.Objects, codec, gr, r.newObject),
			Codec: codec},
		StorageVersioner:        r.group,
		DeleteCollectionWorkers: 1,
	}
	err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: generic.RESTOptions{ResourcePrefix: r.plural}})
	return &stored{store, shortNames}, err
}

type status struct{ store *registry.Store }

var _ rest.Patcher = (*status)(nil)

func statusOf(s *stored, strategy *strategy) *status {
	store := *s.Store
	store.UpdateStrategy, store.ResetFieldsStrategy = strategy, strategy
	return &status{&store}
}

func (s *status) New() runtime.Object { return s.store.New() }

func (*status) Destroy() {}

func (s *status) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, opts)
}

// Update never creates an object.
func (s *status) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, opts *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, unquoted{info}, createValidation, updateValidation, false, opts)
}

func (s *status) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

func (s *status) ConvertToTable(ctx context.Context, obj, opts runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, opts)
}

// fieldsToReset returns the set of a version's fields that clients cannot write.
func fieldsToReset(gv schema.GroupVersion, paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(gv.String()): fieldpath.NewSet(paths...)}
}
