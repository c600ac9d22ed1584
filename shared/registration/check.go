package registration

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/identity"
)

// anonymous is whom a member sees in a caller without a credential that it knows, where it lets such callers in.
const anonymous = "system:anonymous"

// known returns an error unless the member knows the credential. kube-apiserver answers 401 to a wrong token; what it does
// not understand at all, as basic authentication, it passes over.
func known(ctx context.Context, m *cluster.Member) error {
	user, err := m.WhoAmI(ctx)
	var refused *cluster.CallError
	if errors.As(err, &refused) && refused.Code == http.StatusNotFound {
		_, err = allowed(ctx, m, resource{Resource: "users"}) // that older members answer, too, and only to callers whom they know
	}
	switch {
	case user == anonymous,
		errors.As(err, &refused) && refused.Code == http.StatusForbidden && strings.Contains(refused.Answer, anonymous):
		return errors.New("the cluster does not know the credential: to it, the caller is anonymous")
	case err != nil && refused != nil && refused.Code == http.StatusForbidden:
		return nil // it is known, and may not even ask
	}
	return err
}

// resource is what a review asks about.
type resource struct {
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Verb        string `json:"verb"`
}

func (r resource) String() string {
	name := r.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if r.Group != "" {
		name += " in " + r.Group
	}
	return name
}

// impersonated are the parts of an identity that the gateway tells a member; service accounts and uids where callers ask to be
// somebody else.
var impersonated = []resource{
	{Resource: "users"},
	{Resource: "groups"},
	{Resource: "serviceaccounts"},
	{Group: authentication, Resource: "uids"},
	{Group: authentication, Resource: "userextras", Subresource: identity.ExtraARN},
	{Group: authentication, Resource: "userextras", Subresource: identity.ExtraOriginalUser},
	{Group: authentication, Resource: "userextras", Subresource: identity.ExtraPass},
}

const authentication = "authentication.k8s.io"

// LackingError says what a credential may not impersonate. Rights that were granted just now may be in force only a moment
// later.
type LackingError struct{ Lacking []string }

func (e *LackingError) Error() string {
	return "the credential may not impersonate " + strings.Join(e.Lacking, ", ") +
		"; see clusterpass cluster join, or use --identity direct"
}

// lacks lists what the credential may not impersonate, of all that the gateway needs, whatever its name. With someGroups
// it is enough that it may impersonate some groups.
func lacks(ctx context.Context, m *cluster.Member, someGroups bool) (lacking []string, err error) {
	for _, r := range impersonated {
		r.Verb = "impersonate"
		may, err := allowed(ctx, m, r)
		if err == nil && !may && someGroups && r.Resource == "groups" {
			may, err = namedGroups(ctx, m)
		}
		if err != nil {
			return nil, err
		}
		if !may {
			lacking = append(lacking, r.String())
		}
	}
	return lacking, nil
}

// allowed asks the member whether the credential may do what r says.
func allowed(ctx context.Context, m *cluster.Member, r resource) (bool, error) {
	// The part of authorization.k8s.io/v1 SelfSubjectAccessReview that is needed here.
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Spec            struct {
			ResourceAttributes resource `json:"resourceAttributes"`
		} `json:"spec"`
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind, review.Spec.ResourceAttributes = "authorization.k8s.io/v1", "SelfSubjectAccessReview", r
	err := m.Call(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review, &review)
	return review.Status.Allowed, err
}

// namedGroups asks the member whether the credential may impersonate some groups by their names.
func namedGroups(ctx context.Context, m *cluster.Member) (bool, error) {
	// The part of authorization.k8s.io/v1 SelfSubjectRulesReview that is needed here.
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Spec            struct {
			Namespace string `json:"namespace"` // any: rules for all of the cluster are among those for each
		} `json:"spec"`
		Status struct {
			ResourceRules []struct {
				Verbs, APIGroups, Resources, ResourceNames []string
			} `json:"resourceRules"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind, review.Spec.Namespace = "authorization.k8s.io/v1", "SelfSubjectRulesReview", metav1.NamespaceDefault
	err := m.Call(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review, &review)
	for _, rule := range review.Status.ResourceRules {
		if slices.Contains(rule.Verbs, "impersonate") && slices.Contains(rule.APIGroups, "") &&
			slices.Contains(rule.Resources, "groups") && len(rule.ResourceNames) > 0 {
			return true, err
		}
	}
	return false, err
}
