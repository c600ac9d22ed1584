package registration

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/login"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/identity"
)

// anonymous is the user that a member reports for a caller without a known credential, if it admits such callers.
const anonymous = "system:anonymous"

// checkKnown returns an error unless the member recognizes the credential. kube-apiserver ignores a credential of an
// unsupported kind, such as basic authentication, and treats the caller as anonymous.
func checkKnown(ctx context.Context, m *cluster.Member) error {
	user, err := m.WhoAmI(ctx)
	var refused *cluster.CallError
	if errors.As(err, &refused) && refused.Code == http.StatusNotFound {
		// older members support this, too, but only for callers that they know
		_, err = hasRight(ctx, m, resource{Resource: "users"})
	}
	switch {
	case user == anonymous,
		errors.As(err, &refused) && refused.Code == http.StatusForbidden && strings.Contains(refused.Answer, anonymous):
		return errors.New("the cluster does not know the credential: to it, the caller is anonymous")
	case err != nil && refused != nil && refused.Code == http.StatusForbidden:
		return nil // known, but not allowed to ask
	}
	return err
}

// GatewayError is the error of a registration whose server is a gateway, with the URL of the server.
type GatewayError string

func (e GatewayError) Error() string {
	return string(e) + " is a Clusterpass gateway and no cluster; name a context of the cluster itself with --context"
}

// isGateway also recognizes the URL of a cluster behind a gateway, because it ignores the path of the server.
func isGateway(ctx context.Context, m *cluster.Member) bool {
	server := m.Server
	defer func() { m.Server = server }()
	m.Server = &url.URL{Scheme: server.Scheme, Host: server.Host}
	return m.Call(ctx, http.MethodGet, login.Path, nil, &login.Methods{}) == nil
}

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

// impersonated are the parts of an identity that the gateway sends to a member.
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

// LackingError lists identity parts that a credential may not impersonate. New rights may need a moment.
type LackingError struct{ Lacking []string }

func (e *LackingError) Error() string {
	return "the credential may not impersonate " + strings.Join(e.Lacking, ", ") +
		"; see clusterpass cluster join, or use --identity direct"
}

// missingRights lists the parts that the credential may not impersonate. With someGroups, some groups suffice.
func missingRights(ctx context.Context, m *cluster.Member, someGroups bool) (lacking []string, err error) {
	for _, r := range impersonated {
		r.Verb = "impersonate"
		isAllowed, err := hasRight(ctx, m, r)
		if err == nil && !isAllowed && someGroups && r.Resource == "groups" {
			isAllowed, err = hasSomeGroups(ctx, m)
		}
		if err != nil {
			return nil, err
		}
		if !isAllowed {
			lacking = append(lacking, r.String())
		}
	}
	return lacking, nil
}

func hasRight(ctx context.Context, m *cluster.Member, r resource) (bool, error) {
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Spec            struct {
			ResourceAttributes resource `json:"resourceAttributes"`
		} `json:"spec"`
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	review.Spec.ResourceAttributes = r
	err := m.Call(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review, &review)
	return review.Status.Allowed, err
}

func hasSomeGroups(ctx context.Context, m *cluster.Member) (bool, error) {
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Spec            struct {
			Namespace string `json:"namespace"` // any namespace: its rules include those for all namespaces
		} `json:"spec"`
		Status struct {
			ResourceRules []struct {
				Verbs         []string `json:"verbs"`
				APIGroups     []string `json:"apiGroups"`
				Resources     []string `json:"resources"`
				ResourceNames []string `json:"resourceNames"`
			} `json:"resourceRules"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectRulesReview"
	review.Spec.Namespace = metav1.NamespaceDefault
	err := m.Call(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review, &review)
	for _, rule := range review.Status.ResourceRules {
		if slices.Contains(rule.Verbs, "impersonate") && slices.Contains(rule.APIGroups, "") &&
			slices.Contains(rule.Resources, "groups") && len(rule.ResourceNames) > 0 {
			return true, err
		}
	}
	return false, err
}
