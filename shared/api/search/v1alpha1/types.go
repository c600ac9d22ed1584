package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the API group.
const (
	Group      = "search.karmada.io"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
	Kind       = "ResourceRegistry"
	// Prefix begins the key of every ResourceRegistry in the object store; the registry's name follows.
	Prefix = "resourceregistries/"
)

// Any in a ResourceSelector stands for every API version, or for every kind.
const Any = "*"

// ResourceRegistry makes kinds of some clusters global. Several registries unite.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ResourceRegistry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceRegistrySpec   `json:"spec,omitempty"`
	Status ResourceRegistryStatus `json:"status,omitempty"`
}

// ResourceRegistryList is a list of ResourceRegistries.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ResourceRegistryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceRegistry `json:"items"`
}

// ResourceRegistrySpec says which kinds, and of which clusters.
type ResourceRegistrySpec struct {
	// TargetCluster says which clusters; empty means all.
	TargetCluster ClusterAffinity `json:"targetCluster"`
	// ResourceSelectors say which kinds.
	//
	// +listType=atomic
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`
}

// ClusterAffinity chooses clusters: those that meet every condition that is set. The zero value chooses all.
type ClusterAffinity struct {
	// LabelSelector chooses by the clusters' labels.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// FieldSelector chooses by the clusters' provider, region and zones.
	FieldSelector *FieldSelector `json:"fieldSelector,omitempty"`
	// ClusterNames chooses by name; empty means all.
	//
	// +listType=set
	ClusterNames []string `json:"clusterNames,omitempty"`
	// ExcludeClusters are never chosen.
	//
	// +listType=set
	ExcludeClusters []string `json:"exclude,omitempty"`
}

// FieldSelector chooses clusters by spec.provider, spec.region and spec.zones.
type FieldSelector struct {
	// MatchExpressions must all be met.
	//
	// +listType=atomic
	MatchExpressions []FieldRequirement `json:"matchExpressions,omitempty"`
}

// FieldRequirement is one condition. Key is provider, region or zone; Operator is In or NotIn. In is met by a cluster all of whose zones are among
// the values, NotIn by one none of whose zones is.
type FieldRequirement struct {
	// Key is provider, region or zone.
	Key string `json:"key"`
	// Operator is In or NotIn.
	Operator string `json:"operator"`
	// Values of which one must be, or none may be, the field's.
	//
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// ResourceSelector names a kind. With a Namespace only that namespace's objects are global.
type ResourceSelector struct {
	// APIVersion of the kind, such as apps/v1, or * for all.
	APIVersion string `json:"apiVersion"`
	// Kind, such as Pod, or * for all.
	Kind string `json:"kind"`
	// Namespace limits a kind to one namespace.
	Namespace string `json:"namespace,omitempty"`
}

// ResourceRegistryStatus is accepted for Karmada's sake; nothing is written there.
type ResourceRegistryStatus struct {
	// Conditions of the registry.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
