// Package v1alpha1 holds the types of cluster.karmada.io/v1alpha1: the fields of Karmada's Cluster that mean
// something here, and a few of our own, marked as such.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.karmada.cluster.v1alpha1
// +groupName=cluster.karmada.io
package v1alpha1

//go:generate go tool deepcopy-gen --output-file zz_generated.deepcopy.go .
