// Package v1alpha1 holds the types of clusterpass.io/v1alpha1, which are the gateway's own: passes, and revocations of
// client certificates.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.clusterpass.v1alpha1
// +groupName=clusterpass.io
package v1alpha1

//go:generate go tool deepcopy-gen --output-file zz_generated.deepcopy.go .
