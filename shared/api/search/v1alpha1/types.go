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
	// Prefix starts the key of every ResourceRegistry in the object store. The registry's name follows.
	Prefix = "resourceregistries/"
)

// Any in a ResourceSelector means every API version, or every kind.
const Any = "*"

// ResourceRegistry makes kinds of some clusters global. The kinds of several registries are combined.
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

// ResourceRegistrySpec selects kinds and clusters.
type ResourceRegistrySpec struct {
	// TargetCluster selects clusters. Empty means all.
	TargetCluster ClusterAffinity `json:"targetCluster"`
	// ResourceSelectors select kinds.
	//
	// +listType=atomic
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`
}

// ClusterAffinity selects the clusters that meet every condition that is set. The zero value selects all.
type ClusterAffinity struct {
	// LabelSelector selects by the clusters' labels.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// FieldSelector selects by the clusters' provider, region and zones.
	FieldSelector *FieldSelector `json:"fieldSelector,omitempty"`
	// ClusterNames selects by name. Empty means all.
	//
	// +listType=set
	ClusterNames []string `json:"clusterNames,omitempty"`
	// ExcludeClusters are never selected.
	//
	// +listType=set
	ExcludeClusters []string `json:"exclude,omitempty"`
}

// FieldSelector selects clusters by spec.provider, spec.region and spec.zones.
type FieldSelector struct {
	// MatchExpressions must all be met.
	//
	// +listType=atomic
	MatchExpressions []FieldRequirement `json:"matchExpressions,omitempty"`
}

// FieldRequirement is one condition. Key is provider, region or zone. Operator is In or NotIn. For zones, In means that
// all zones of the cluster are among the values, and NotIn that none of them is.
type FieldRequirement struct {
	// Key is provider, region or zone.
	Key string `json:"key"`
	// Operator is In or NotIn.
	Operator string `json:"operator"`
	// Values to compare with the field.
	//
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// ResourceSelector selects a kind. With a Namespace, only objects in that namespace are global.
type ResourceSelector struct {
	// APIVersion of the kind, such as apps/v1, or * for all.
	APIVersion string `json:"apiVersion"`
	// Kind, such as Pod, or * for all.
	Kind string `json:"kind"`
	// Namespace limits a kind to one namespace.
	Namespace string `json:"namespace,omitempty"`
}

// ResourceRegistryStatus is accepted for compatibility with Karmada. The gateway never writes it.
type ResourceRegistryStatus struct {
	// Conditions of the registry.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
