package control

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/control/registry"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
)

func (s *Server) recordingPolicies() *stored {
	return s.store(registry.Store{
		Version: passGroup, Plural: "recordingpolicies", Singular: "recordingpolicy",
		NewObject:     func() runtime.Object { return &v1alpha1.RecordingPolicy{} },
		NewListObject: func() runtime.Object { return &v1alpha1.RecordingPolicyList{} },
		Strategy: s.strategy(strategy{
			prepare: prepareNothing,
			validate: func(obj, _ runtime.Object) field.ErrorList {
				return policy.Validate(&obj.(*v1alpha1.RecordingPolicy).Spec)
			},
		}),
		TableConvertor: table{
			{name: "Level", about: "required or bestEffort.", cell: recordingCell(
				func(spec *v1alpha1.RecordingPolicySpec) string { return string(spec.Level) })},
			{name: "Input", about: "Whether input is recorded.", cell: recordingCell(
				func(spec *v1alpha1.RecordingPolicySpec) string { return strconv.FormatBool(spec.RecordInput) })},
			{name: "Clusters", about: "Clusters whose sessions are recorded.", cell: recordingCell(
				func(spec *v1alpha1.RecordingPolicySpec) string { return allOr(spec.Clusters) })},
			{name: "Namespaces", about: "Namespaces whose sessions are recorded.", cell: recordingCell(
				func(spec *v1alpha1.RecordingPolicySpec) string { return allOr(spec.Namespaces) })},
			{name: "Callers", about: "Users and groups whose sessions are recorded.", cell: recordingCell(
				func(spec *v1alpha1.RecordingPolicySpec) string { return allOr(slices.Concat(spec.Users, spec.Groups)) })},
			age,
		},
	}, "rp")
}

func recordingCell(cell func(*v1alpha1.RecordingPolicySpec) string) func(runtime.Object) any {
	return func(obj runtime.Object) any { return cell(&obj.(*v1alpha1.RecordingPolicy).Spec) }
}

func allOr(globs []string) string {
	if len(globs) == 0 {
		return "*"
	}
	return strings.Join(globs, ",")
}
