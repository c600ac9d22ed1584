// Package registry decides which kinds of which clusters a ResourceRegistry covers, without side effects.
package registry

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
)

// Kind is a kind in the form of a URL.
type Kind struct {
	APIVersion string // v1, apps/v1
	Resource   string // pods
	Kind       string // Gateway; "" until a member has reported it
}

// Scope is the part of a kind that is global in one cluster.
type Scope struct {
	All        bool     // all namespaces, and cluster-scoped objects
	Namespaces []string // without All, these namespaces
}

// Covers reports whether the scope has a part in namespace; "" means all namespaces.
func (s Scope) Covers(namespace string) bool {
	return s.All || namespace == "" && len(s.Namespaces) > 0 || slices.Contains(s.Namespaces, namespace)
}

// ScopeOf returns the union of the scopes of all registries for a kind in a cluster. Invalid registries have no scope.
func ScopeOf(registries []searchv1alpha1.ResourceRegistry, c *clusterv1alpha1.Cluster, k Kind) Scope {
	var s Scope
	for i := range registries {
		spec := &registries[i].Spec
		if !isSelected(&spec.TargetCluster, c) {
			continue
		}
		for _, sel := range spec.ResourceSelectors {
			switch {
			case !coversKind(sel, k):
			case sel.Namespace == "":
				return Scope{All: true}
			case !slices.Contains(s.Namespaces, sel.Namespace):
				s.Namespaces = append(s.Namespaces, sel.Namespace)
			}
		}
	}
	slices.Sort(s.Namespaces)
	return s
}

// SelectsCluster reports whether a registry selects the cluster, for any kind.
func SelectsCluster(registries []searchv1alpha1.ResourceRegistry, c *clusterv1alpha1.Cluster) bool {
	return slices.ContainsFunc(registries, func(r searchv1alpha1.ResourceRegistry) bool {
		return isSelected(&r.Spec.TargetCluster, c)
	})
}

// NeedsKind reports whether k.Kind must be known to decide whether registries cover k in a cluster. Groups without a
// dot in their name never need it.
func NeedsKind(registries []searchv1alpha1.ResourceRegistry, c *clusterv1alpha1.Cluster, k Kind) bool {
	needsKind := false
	for i := range registries {
		spec := &registries[i].Spec
		if !isSelected(&spec.TargetCluster, c) {
			continue
		}
		for _, sel := range spec.ResourceSelectors {
			if coversKind(sel, k) {
				return false
			}
			needsKind = needsKind || k.Kind == "" && !isBuiltIn(k.APIVersion) && coversVersion(sel, k)
		}
	}
	return needsKind
}

// isBuiltIn reports whether a group has no dot in its name. Kubernetes defines all of these, so the kind determines the
// resource. In other groups, only the cluster knows the plural.
func isBuiltIn(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return !strings.Contains(group, ".")
}

func coversVersion(sel searchv1alpha1.ResourceSelector, k Kind) bool {
	return sel.APIVersion == k.APIVersion || sel.APIVersion == searchv1alpha1.Any
}

func coversKind(sel searchv1alpha1.ResourceSelector, k Kind) bool {
	if !coversVersion(sel, k) {
		return false
	}
	if sel.Kind == searchv1alpha1.Any {
		return true
	}
	if k.Kind != "" && !isBuiltIn(k.APIVersion) {
		return sel.Kind == k.Kind
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: sel.Kind})
	return plural.Resource == k.Resource
}

func isSelected(a *searchv1alpha1.ClusterAffinity, c *clusterv1alpha1.Cluster) bool {
	if slices.Contains(a.ExcludeClusters, c.Name) || len(a.ClusterNames) > 0 && !slices.Contains(a.ClusterNames, c.Name) {
		return false
	}
	if a.LabelSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if err != nil || !s.Matches(labels.Set(c.Labels)) {
			return false
		}
	}
	if a.FieldSelector != nil {
		for _, r := range a.FieldSelector.MatchExpressions {
			if !meets(r, c) {
				return false
			}
		}
	}
	return true
}

// meets follows Karmada: In requires that all zones of the cluster are listed, and NotIn that none is.
func meets(r searchv1alpha1.FieldRequirement, c *clusterv1alpha1.Cluster) bool {
	var values []string
	switch r.Key {
	case "provider":
		values = []string{c.Spec.Provider}
	case "region":
		values = []string{c.Spec.Region}
	case "zone":
		values = c.Spec.Zones
	default:
		return false
	}
	isListed := func(v string) bool { return slices.Contains(r.Values, v) }
	switch r.Operator {
	case "In":
		return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return !isListed(v) })
	case "NotIn":
		return !slices.ContainsFunc(values, isListed)
	}
	return false
}
