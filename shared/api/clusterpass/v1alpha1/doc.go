// Package v1alpha1 contains the types of clusterpass.io/v1alpha1, the gateway's own group: passes, recording policies,
// and revocations of client certificates.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.clusterpass.v1alpha1
// +groupName=clusterpass.io
package v1alpha1

//go:generate go tool deepcopy-gen --output-file zz_generated.deepcopy.go .
