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

// withCaller adds the caller to a context, for the gateway and for the handlers of k8s.io/apiserver.
func withCaller(ctx context.Context, u *identity.User) context.Context {
	ctx = context.WithValue(ctx, callerKey{}, u)
	return request.WithUser(ctx, &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: groupsOf(u), Extra: u.Extra})
}

// caller returns a user without rights if the context has no caller, which is a programming error.
func caller(ctx context.Context) *identity.User {
	if u, ok := ctx.Value(callerKey{}).(*identity.User); ok {
		return u
	}
	return &identity.User{}
}

// publicURLs are the paths that every authenticated caller may read. They describe the API, not its objects.
var publicURLs = []string{"/", "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
	"/readyz", "/version", "/version/"}

func isPublic(a access.Attributes) bool {
	if a.Path == "" {
		return a.Verb == "create" && a.Subresource == "" && a.Name == "" &&
			(a.APIGroup == authnGroup.Group && a.Resource == "selfsubjectreviews" ||
				a.APIGroup == authzGroup.Group &&
					(a.Resource == "selfsubjectaccessreviews" || a.Resource == "selfsubjectrulesreviews"))
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

func (s *Server) decide(ctx context.Context, a access.Attributes) (reason string, err error) {
	if isPublic(a) {
		return "open to every identified caller", nil
	}
	return s.cfg.Access.Decide(ctx, caller(ctx), a)
}

func attributes(info *request.RequestInfo) access.Attributes {
	if !info.IsResourceRequest {
		return access.Attributes{Verb: info.Verb, Path: info.Path}
	}
	return access.Attributes{
		Verb: info.Verb, APIGroup: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name,
	}
}

// applyAuthorizer authorizes the second right that one request may need: create, for an apply of a new object.
type applyAuthorizer struct{ s *Server }

func (i applyAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
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

func (i applyAuthorizer) ConditionsAwareAuthorize(ctx context.Context,
	a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(i.Authorize(ctx, a))
}

func (applyAuthorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

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
