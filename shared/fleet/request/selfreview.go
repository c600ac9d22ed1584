package request

import (
	"slices"

	"github.com/clusterpass/clusterpass/shared/route"
)

// SelfReview is a resource whose create answers what the caller may do, or who the caller is.
type SelfReview struct{ Group, Resource, Kind string }

// SelfReviewVersion is the version of all SelfReviews.
const SelfReviewVersion = "v1"

// The reviews that the fleet itself answers, whichever kinds the registries cover.
var (
	AccessReview  = SelfReview{"authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"}
	RulesReview   = SelfReview{"authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"}
	SubjectReview = SelfReview{"authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"}
	SelfReviews   = []SelfReview{SubjectReview, AccessReview, RulesReview}
)

// APIVersion returns the apiVersion of the review's objects.
func (s SelfReview) APIVersion() string { return s.Group + "/" + SelfReviewVersion }

// SelfReviewOf returns the review that a request for the resource creates. ok is false for every other request.
func SelfReviewOf(res route.Resource) (of SelfReview, ok bool) {
	if res.Verb != "create" || res.APIVersion != SelfReviewVersion || res.Namespace+res.Name+res.Subresource != "" {
		return of, false
	}
	i := slices.IndexFunc(SelfReviews, func(s SelfReview) bool {
		return s.Group == res.APIGroup && s.Resource == res.Resource
	})
	if i < 0 {
		return of, false
	}
	return SelfReviews[i], true
}
