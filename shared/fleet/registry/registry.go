// Package registry decides what is global: which ResourceRegistry takes in which kinds of which clusters. It is pure.
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

// Kind is a kind as its users name it in a URL.
type Kind struct {
	APIVersion string // v1, apps/v1
	Resource   string // pods
	// Kind is Gateway, or "" where nobody has asked a member yet. Without it, and of Kubernetes' own groups, Resource decides, as far as it follows
	// from the kind's name.
	Kind string
}

// Scope is what of a kind is global in one cluster.
type Scope struct {
	All        bool     // every namespace, and what has none
	Namespaces []string // else these
}

// Takes reports whether a call in namespace is within the scope; "" is a list or a watch across namespaces;
// whether the kind is one of those without is not looked at.
func (s Scope) Takes(namespace string) bool {
	return s.All || namespace == "" && len(s.Namespaces) > 0 || slices.Contains(s.Namespaces, namespace)
}

// ScopeOf unites what registries say of a kind in a cluster. Registries that cannot be read say nothing.
func ScopeOf(registries []searchv1alpha1.ResourceRegistry, c *clusterv1alpha1.Cluster, k Kind) Scope {
	var s Scope
	for i := range registries {
		spec := &registries[i].Spec
		if !chooses(&spec.TargetCluster, c) {
			continue
		}
		for _, sel := range spec.ResourceSelectors {
			switch {
			case !takes(sel, k):
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

// Chooses reports whether a registry chooses the cluster, for any kind.
func Chooses(registries []searchv1alpha1.ResourceRegistry, c *clusterv1alpha1.Cluster) bool {
	return slices.ContainsFunc(registries, func(r searchv1alpha1.ResourceRegistry) bool {
		return chooses(&r.Spec.TargetCluster, c)
	})
}

// Doubtful reports whether only the cluster can tell if k is taken in there: a registry that chooses it names kinds of k's API version that may
// be k, k.Kind is not known, and no kind's name leads to its resource.
func Doubtful(registries []searchv1alpha1.ResourceRegistry, c *clusterv1alpha1.Cluster, k Kind) bool {
	doubt := false
	for i := range registries {
		spec := &registries[i].Spec
		if !chooses(&spec.TargetCluster, c) {
			continue
		}
		for _, sel := range spec.ResourceSelectors {
			if takes(sel, k) {
				return false
			}
			doubt = doubt || k.Kind == "" && !regular(k.APIVersion) && versionTaken(sel, k)
		}
	}
	return doubt
}

// regular reports whether in an API version the names of kinds lead to those of their resources, so that no cluster's word is needed. That is so
// in Kubernetes' own groups, whose names have no dot; those of custom resources have one.
func regular(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return !strings.Contains(group, ".")
}

func versionTaken(sel searchv1alpha1.ResourceSelector, k Kind) bool {
	return sel.APIVersion == k.APIVersion || sel.APIVersion == searchv1alpha1.Any
}

func takes(sel searchv1alpha1.ResourceSelector, k Kind) bool {
	if !versionTaken(sel, k) {
		return false
	}
	if sel.Kind == searchv1alpha1.Any {
		return true
	}
	if k.Kind != "" && !regular(k.APIVersion) {
		return sel.Kind == k.Kind
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: sel.Kind})
	return plural.Resource == k.Resource
}

// chooses reports whether a cluster meets every condition of a.
func chooses(a *searchv1alpha1.ClusterAffinity, c *clusterv1alpha1.Cluster) bool {
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

// meets reports whether a cluster meets a condition, as Karmada has it: In is met by one all of whose zones are there, NotIn by one none of whose
// zones is.
func meets(r searchv1alpha1.FieldRequirement, c *clusterv1alpha1.Cluster) bool {
	var have []string
	switch r.Key {
	case "provider":
		have = []string{c.Spec.Provider}
	case "region":
		have = []string{c.Spec.Region}
	case "zone":
		have = c.Spec.Zones
	default:
		return false
	}
	there := func(v string) bool { return slices.Contains(r.Values, v) }
	switch r.Operator {
	case "In":
		return len(have) > 0 && !slices.ContainsFunc(have, func(v string) bool { return !there(v) })
	case "NotIn":
		return !slices.ContainsFunc(have, there)
	}
	return false
}
