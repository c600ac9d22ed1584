package control

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/identity"
	gatewaystatus "github.com/clusterpass/clusterpass/shared/status"
)

type callerKey struct{}

// withCaller puts who calls into a context, in both forms.
func withCaller(ctx context.Context, u *identity.User) context.Context {
	ctx = context.WithValue(ctx, callerKey{}, u)
	return request.WithUser(ctx, &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: groupsOf(u), Extra: u.Extra})
}

// caller is who calls. Without one, which cannot be, it is somebody who may do nothing.
func caller(ctx context.Context) *identity.User {
	if u, ok := ctx.Value(callerKey{}).(*identity.User); ok {
		return u
	}
	return &identity.User{}
}

// publicURLs are what everybody who is identified may read: what there is, not what is in it.
var publicURLs = []string{"/", "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"}

// public reports whether a is allowed to everybody who is identified.
func public(a access.Attributes) bool {
	if a.Path == "" {
		return a.Verb == "create" && a.Subresource == "" && a.Name == "" &&
			(a.APIGroup == authnGroup.Group && a.Resource == "selfsubjectreviews" ||
				a.APIGroup == authzGroup.Group && (a.Resource == "selfsubjectaccessreviews" || a.Resource == "selfsubjectrulesreviews"))
	}
	if a.Verb != "get" && a.Verb != "head" {
		return false
	}
	for _, u := range publicURLs {
		if prefix, ok := strings.CutSuffix(u, "*"); a.Path == u || ok && strings.HasPrefix(a.Path, prefix) {
			return true
		}
	}
	return false
}

// decide returns nil if the caller may do a, and why; otherwise a *status.Error.
func (s *Server) decide(ctx context.Context, a access.Attributes) (reason string, err error) {
	if public(a) {
		return "open to every identified caller", nil
	}
	return s.cfg.Access.Decide(ctx, caller(ctx), a)
}

// attributes are what a request asks, as the API server's own reading of it has it.
func attributes(info *request.RequestInfo) access.Attributes {
	if !info.IsResourceRequest {
		return access.Attributes{Verb: info.Verb, Path: info.Path}
	}
	return access.Attributes{
		Verb: info.Verb, APIGroup: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name,
	}
}

// inner is asked by the API server itself where one request needs a second right: an apply that creates.
type inner struct{ s *Server }

// Authorize implements authorizer.Authorizer.
func (i inner) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	attrs := access.Attributes{Verb: a.GetVerb(), Path: a.GetPath()}
	if a.IsResourceRequest() {
		attrs = access.Attributes{
			Verb: a.GetVerb(), APIGroup: a.GetAPIGroup(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
			Namespace: a.GetNamespace(), Name: a.GetName(),
		}
	}
	reason, err := i.s.decide(ctx, attrs)
	var refused *gatewaystatus.Error
	switch {
	case err == nil:
		return authorizer.DecisionAllow, reason, nil
	case errors.As(err, &refused) && refused.Reason == gatewaystatus.Forbidden:
		return authorizer.DecisionNoOpinion, reason, nil
	}
	return authorizer.DecisionNoOpinion, "", err
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (i inner) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(i.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer: there are no conditions.
func (inner) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// asAPIError gives an error of the gateway the form that the API server answers with.
func asAPIError(err error) error {
	var e *gatewaystatus.Error
	if !errors.As(err, &e) {
		return err
	}
	reason := metav1.StatusReasonForbidden
	if e.Code() == http.StatusServiceUnavailable {
		reason = metav1.StatusReasonServiceUnavailable
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(e.Code()), Reason: reason, Message: e.Message,
		Details: &metav1.StatusDetails{RetryAfterSeconds: int32(e.RetryAfter.Seconds())},
	}}
}
