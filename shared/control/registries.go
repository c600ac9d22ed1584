package control

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/control/registry"
)

func (s *Server) registries() (*stored, *status) {
	spec := s.strategy(strategy{
		prepare: func(_ context.Context, obj, old runtime.Object) {
			r := obj.(*v1alpha1.ResourceRegistry)
			if r.Status = (v1alpha1.ResourceRegistryStatus{}); old != nil {
				r.Status = old.(*v1alpha1.ResourceRegistry).Status
			}
		},
		validate: func(obj, _ runtime.Object) field.ErrorList { return validateRegistry(obj.(*v1alpha1.ResourceRegistry)) },
		reset:    fieldsToReset(searchGroup, fieldpath.MakePathOrDie("status")),
	})
	store := s.store(registry.Store{
		Version: searchGroup, Plural: "resourceregistries", Singular: "resourceregistry", Strategy: spec,
		NewObject:     func() runtime.Object { return &v1alpha1.ResourceRegistry{} },
		NewListObject: func() runtime.Object { return &v1alpha1.ResourceRegistryList{} },
		TableConvertor: table{
			{name: "Clusters", about: "Clusters by name; * for all that the selectors choose.",
				cell: registryCell(func(spec *v1alpha1.ResourceRegistrySpec) string {
					if len(spec.TargetCluster.ClusterNames) == 0 {
						return "*"
					}
					return strings.Join(spec.TargetCluster.ClusterNames, ",")
				})},
			{name: "Kinds", about: "Kinds that are global.",
				cell: registryCell(func(spec *v1alpha1.ResourceRegistrySpec) string {
					kinds := make([]string, len(spec.ResourceSelectors))
					for i, r := range spec.ResourceSelectors {
						kinds[i] = r.Kind
					}
					return strings.Join(kinds, ",")
				})},
			age,
		},
	}, "rr")
	return store, statusOf(store, s.strategy(strategy{
		prepare: func(_ context.Context, obj, old runtime.Object) {
			r, before := obj.(*v1alpha1.ResourceRegistry), old.(*v1alpha1.ResourceRegistry)
			r.Spec, r.Labels, r.Annotations, r.Finalizers = before.Spec, before.Labels, before.Annotations, before.Finalizers
		},
		validate: func(obj, _ runtime.Object) field.ErrorList {
			return metav1validation.ValidateConditions(obj.(*v1alpha1.ResourceRegistry).Status.Conditions,
				field.NewPath("status", "conditions"))
		},
		reset: fieldsToReset(searchGroup, fieldpath.MakePathOrDie("spec")),
	}))
}

func registryCell(cell func(*v1alpha1.ResourceRegistrySpec) string) func(runtime.Object) any {
	return func(obj runtime.Object) any { return cell(&obj.(*v1alpha1.ResourceRegistry).Spec) }
}

func validateRegistry(r *v1alpha1.ResourceRegistry) field.ErrorList {
	var errs field.ErrorList
	target := field.NewPath("spec", "targetCluster")
	errs = append(errs, metav1validation.ValidateLabelSelector(r.Spec.TargetCluster.LabelSelector,
		metav1validation.LabelSelectorValidationOptions{}, target.Child("labelSelector"))...)
	if fs := r.Spec.TargetCluster.FieldSelector; fs != nil {
		for i, e := range fs.MatchExpressions {
			at := target.Child("fieldSelector", "matchExpressions").Index(i)
			if e.Key != "provider" && e.Key != "region" && e.Key != "zone" {
				errs = append(errs, field.NotSupported(at.Child("key"), e.Key, []string{"provider", "region", "zone"}))
			}
			if op := metav1.LabelSelectorOperator(e.Operator); op != metav1.LabelSelectorOpIn &&
				op != metav1.LabelSelectorOpNotIn {
				errs = append(errs, field.NotSupported(at.Child("operator"), op,
					[]metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn}))
			}
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), "name at least one value"))
			}
		}
	}
	selectors := field.NewPath("spec", "resourceSelectors")
	if len(r.Spec.ResourceSelectors) == 0 {
		errs = append(errs, field.Required(selectors, "name at least one kind"))
	}
	for i, sel := range r.Spec.ResourceSelectors {
		if sel.APIVersion == "" {
			errs = append(errs, field.Required(selectors.Index(i).Child("apiVersion"), "such as v1, apps/v1 or *"))
		} else if _, err := schema.ParseGroupVersion(sel.APIVersion); err != nil {
			errs = append(errs, field.Invalid(selectors.Index(i).Child("apiVersion"), sel.APIVersion,
				"want a version such as v1 or apps/v1"))
		}
		if sel.Kind == "" {
			errs = append(errs, field.Required(selectors.Index(i).Child("kind"), "such as Pod, or *"))
		}
	}
	return errs
}
