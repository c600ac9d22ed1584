package control

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/clusterpass/clusterpass/shared/control/registry"
)

// strategy is the write strategy of a cluster-scoped resource. An update without a resourceVersion is unconditional.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	// prepare sets the fields that clients cannot write, before validation. old is nil for a new object.
	prepare  func(ctx context.Context, obj, old runtime.Object)
	validate func(obj, old runtime.Object) field.ErrorList
	// reset contains the fields that prepare overwrites. No field manager owns them.
	reset       map[fieldpath.APIVersion]*fieldpath.Set
	createByPut bool
}

var _ registry.Strategy = (*strategy)(nil)

// strategy completes st with what is the same for all resources.
func (s *Server) strategy(st strategy) *strategy {
	st.ObjectTyper, st.NameGenerator = s.scheme, names.SimpleNameGenerator
	return &st
}

func (*strategy) NamespaceScoped() bool { return false }
func (s *strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.prepare(ctx, obj, nil)
}
func (s *strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.prepare(ctx, obj, old)
}
func (s *strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return s.validate(obj, nil)
}
func (*strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (*strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (*strategy) Canonicalize(runtime.Object)                               {}
func (s *strategy) AllowCreateOnUpdate(context.Context) bool                { return s.createByPut }
func (*strategy) AllowUnconditionalUpdate(context.Context) bool             { return true }
func (s *strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return s.reset }

func (s *strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.validate(obj, old)
}
