// Package v1alpha1 contains the types of cluster.karmada.io/v1alpha1: the supported fields of Karmada's Cluster, and
// some extensions of Clusterpass, which are marked.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.karmada.cluster.v1alpha1
// +groupName=cluster.karmada.io
package v1alpha1

//go:generate go tool deepcopy-gen --output-file zz_generated.deepcopy.go .
