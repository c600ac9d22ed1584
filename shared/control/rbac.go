package control

import (
	"context"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/clusterpass/clusterpass/shared/control/registry"
)

// guarded is a resource whose writes need more than the verb. authorize decides whether the caller may write obj. old
// is nil for a new object.
type guarded struct {
	*stored
	authorize func(ctx context.Context, obj, old runtime.Object) error
}

func (g *guarded) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	opts *metav1.CreateOptions) (runtime.Object, error) {
	if err := g.authorize(ctx, obj, nil); err != nil {
		return nil, err
	}
	return g.stored.Create(ctx, obj, validate, opts)
}

func (g *guarded) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceCreate bool, opts *metav1.UpdateOptions) (runtime.Object,
	bool, error) {
	// A transformation sees the stored object, also in a retry after a conflict.
	info = rest.WrapUpdatedObjectInfo(info, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		if m, err := meta.Accessor(old); err == nil && m.GetResourceVersion() == "" {
			old = nil
		}
		return obj, g.authorize(ctx, obj, old)
	})
	return g.stored.Update(ctx, name, info, createValidation, updateValidation, forceCreate, opts)
}

func (s *Server) roles() *guarded {
	store := s.store(registry.Store{
		Version: rbacGroup, Plural: "clusterroles", Singular: "clusterrole",
		NewObject:     func() runtime.Object { return &rbacv1.ClusterRole{} },
		NewListObject: func() runtime.Object { return &rbacv1.ClusterRoleList{} },
		Strategy: s.strategy(strategy{
			createByPut: true, prepare: prepareNothing,
			validate: func(obj, _ runtime.Object) field.ErrorList { return validateRole(obj.(*rbacv1.ClusterRole)) },
		}),
		TableConvertor: table{{name: "Created At", about: "When the object was created.", cell: func(obj runtime.Object) any {
			return obj.(*rbacv1.ClusterRole).CreationTimestamp.UTC().Format(time.RFC3339)
		}}},
	})
	return &guarded{store, func(ctx context.Context, obj, old runtime.Object) error {
		role := obj.(*rbacv1.ClusterRole)
		var before *rbacv1.ClusterRole
		if old != nil {
			before = old.(*rbacv1.ClusterRole)
			// A label can add the rules of a role to aggregating roles, so setting one grants the rules.
			if equality.Semantic.DeepEqual(before.Rules, role.Rules) &&
				equality.Semantic.DeepEqual(before.AggregationRule, role.AggregationRule) &&
				equality.Semantic.DeepEqual(before.Labels, role.Labels) {
				return nil
			}
		}
		policy, err := s.cfg.Access.Latest(ctx)
		if err == nil {
			err = policy.MayWriteRole(caller(ctx), role, before)
		}
		return asAPIError(err)
	}}
}

func (s *Server) bindings() *guarded {
	store := s.store(registry.Store{
		Version: rbacGroup, Plural: "clusterrolebindings", Singular: "clusterrolebinding",
		NewObject:     func() runtime.Object { return &rbacv1.ClusterRoleBinding{} },
		NewListObject: func() runtime.Object { return &rbacv1.ClusterRoleBindingList{} },
		Strategy: s.strategy(strategy{
			createByPut: true, prepare: prepareNothing,
			validate: func(obj, old runtime.Object) field.ErrorList {
				errs := validateBinding(obj.(*rbacv1.ClusterRoleBinding))
				if old != nil && old.(*rbacv1.ClusterRoleBinding).RoleRef != obj.(*rbacv1.ClusterRoleBinding).RoleRef {
					errs = append(errs, field.Invalid(field.NewPath("roleRef"), obj.(*rbacv1.ClusterRoleBinding).RoleRef,
						"cannot change roleRef; delete the binding and create it again"))
				}
				return errs
			},
		}),
		TableConvertor: table{
			{name: "Role", about: "What is granted.", cell: func(obj runtime.Object) any {
				ref := obj.(*rbacv1.ClusterRoleBinding).RoleRef
				return ref.Kind + "/" + ref.Name
			}},
			age,
			{name: "Users", about: "Users with the role.", wide: true, cell: subjects(rbacv1.UserKind)},
			{name: "Groups", about: "Groups with the role.", wide: true, cell: subjects(rbacv1.GroupKind)},
			{name: "ServiceAccounts", about: "Service accounts with the role.", wide: true,
				cell: subjects(rbacv1.ServiceAccountKind)},
		},
	})
	return &guarded{store, func(ctx context.Context, obj, old runtime.Object) error {
		b := obj.(*rbacv1.ClusterRoleBinding)
		if old != nil {
			before := old.(*rbacv1.ClusterRoleBinding)
			if before.RoleRef == b.RoleRef && equality.Semantic.DeepEqual(before.Subjects, b.Subjects) {
				return nil
			}
		}
		policy, err := s.cfg.Access.Latest(ctx)
		if err == nil {
			err = policy.MayWriteBinding(caller(ctx), b)
		}
		return asAPIError(err)
	}}
}

func prepareNothing(context.Context, runtime.Object, runtime.Object) {}

func subjects(kind string) func(runtime.Object) any {
	return func(obj runtime.Object) any {
		var out []string
		for _, s := range obj.(*rbacv1.ClusterRoleBinding).Subjects {
			switch {
			case s.Kind != kind:
			case s.Namespace != "":
				out = append(out, s.Namespace+"/"+s.Name)
			default:
				out = append(out, s.Name)
			}
		}
		return strings.Join(out, ", ")
	}
}

func validateRole(r *rbacv1.ClusterRole) field.ErrorList {
	var errs field.ErrorList
	for i := range r.Rules {
		errs = append(errs, validateRule(&r.Rules[i], field.NewPath("rules").Index(i))...)
	}
	if a := r.AggregationRule; a != nil {
		at := field.NewPath("aggregationRule", "clusterRoleSelectors")
		if len(a.ClusterRoleSelectors) == 0 {
			errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
		}
		for i := range a.ClusterRoleSelectors {
			errs = append(errs, metav1validation.ValidateLabelSelector(&a.ClusterRoleSelectors[i],
				metav1validation.LabelSelectorValidationOptions{}, at.Index(i))...)
		}
	}
	return errs
}

func validateRule(r *rbacv1.PolicyRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(r.NonResourceURLs) > 0 {
		if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs,
				"rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func validateBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	var errs field.ErrorList
	ref := field.NewPath("roleRef")
	if b.RoleRef.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(ref.Child("apiGroup"), b.RoleRef.APIGroup, []string{rbacv1.GroupName}))
	}
	if b.RoleRef.Kind != "ClusterRole" {
		errs = append(errs, field.NotSupported(ref.Child("kind"), b.RoleRef.Kind, []string{"ClusterRole"}))
	}
	if b.RoleRef.Name == "" {
		errs = append(errs, field.Required(ref.Child("name"), ""))
	}
	for i, s := range b.Subjects {
		at := field.NewPath("subjects").Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		group := rbacv1.GroupName
		switch s.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
		case rbacv1.ServiceAccountKind:
			if group = ""; s.Namespace == "" {
				errs = append(errs, field.Required(at.Child("namespace"), ""))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind,
				[]string{rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind}))
			continue
		}
		if s.APIGroup != group {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{group}))
		}
	}
	return errs
}
