package control

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/clusterpass/clusterpass/shared/control/backend"
	"github.com/clusterpass/clusterpass/shared/control/registry"
)

// stored is a resource whose objects are in the gateway's store.
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

// store completes a resource with its storage.
func (s *Server) store(r registry.Store, shortNames ...string) *stored {
	r.Codec = s.codecs.LegacyCodec(r.Version) // JSON of the served version
	r.Storage = backend.New(s.cfg.Objects, r.Codec, r.Resource(), r.NewObject)
	return &stored{&r, shortNames}
}

type status struct{ store registry.Store }

var _ rest.Patcher = (*status)(nil)

func statusOf(s *stored, strategy *strategy) *status {
	out := &status{*s.Store}
	out.store.Strategy = strategy
	return out
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
