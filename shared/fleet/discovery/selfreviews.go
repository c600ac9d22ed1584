package discovery

import (
	"slices"
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

// withSelfReviews returns a copy of a union that also has the reviews that the fleet itself answers.
func withSelfReviews(union discoveryv2.APIGroupDiscoveryList) discoveryv2.APIGroupDiscoveryList {
	union.Items = slices.Clone(union.Items)
	for _, review := range request.SelfReviews {
		group := addNamed(&union.Items, func(g *discoveryv2.APIGroupDiscovery) bool { return g.Name == review.Group },
			discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: review.Group}})
		group.Versions = slices.Clone(group.Versions)
		version := addNamed(&group.Versions,
			func(v *discoveryv2.APIVersionDiscovery) bool { return v.Version == request.SelfReviewVersion },
			discoveryv2.APIVersionDiscovery{
				Version: request.SelfReviewVersion, Freshness: discoveryv2.DiscoveryFreshnessCurrent,
			})
		version.Resources = slices.Clone(version.Resources)
		addNamed(&version.Resources,
			func(r *discoveryv2.APIResourceDiscovery) bool { return r.Resource == review.Resource },
			discoveryv2.APIResourceDiscovery{
				Resource: review.Resource, SingularResource: strings.ToLower(review.Kind), Verbs: []string{"create"},
				ResponseKind: &metav1.GroupVersionKind{
					Group: review.Group, Version: request.SelfReviewVersion, Kind: review.Kind,
				},
				Scope: discoveryv2.ScopeCluster,
			})
	}
	return union
}

// addNamed returns the element that is reports, after it has appended one if there is none.
func addNamed[T any](list *[]T, is func(*T) bool, one T) *T {
	for i := range *list {
		if is(&(*list)[i]) {
			return &(*list)[i]
		}
	}
	*list = append(*list, one)
	return &(*list)[len(*list)-1]
}
