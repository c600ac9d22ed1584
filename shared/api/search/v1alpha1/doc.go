// Package v1alpha1 contains the types of search.karmada.io/v1alpha1: Karmada's ResourceRegistry, which selects the
// kinds and clusters that the fleet serves.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.karmada.search.v1alpha1
// +groupName=search.karmada.io
package v1alpha1

//go:generate go tool deepcopy-gen --output-file zz_generated.deepcopy.go .
