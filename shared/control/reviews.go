package control

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/identity"
)

// review is a resource without stored objects. The response to a create contains the result.
type review struct {
	singular  string
	newObject func() runtime.Object
	answer    func(ctx context.Context, obj runtime.Object) error // fills in the status
}

var (
	_ rest.Creater              = (*review)(nil)
	_ rest.Scoper               = (*review)(nil)
	_ rest.SingularNameProvider = (*review)(nil)
)

func (r *review) New() runtime.Object { return r.newObject() }

func (*review) Destroy() {}

func (*review) NamespaceScoped() bool { return false }

func (r *review) GetSingularName() string { return r.singular }

func (r *review) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return obj, r.answer(ctx, obj)
}

func selfSubjectReview() *review {
	return &review{"selfsubjectreview", func() runtime.Object { return &authenticationv1.SelfSubjectReview{} },
		func(ctx context.Context, obj runtime.Object) error {
			u := caller(ctx)
			info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: groupsOf(u)}
			for key, values := range u.Extra {
				if info.Extra == nil {
					info.Extra = map[string]authenticationv1.ExtraValue{}
				}
				info.Extra[key] = values
			}
			review := obj.(*authenticationv1.SelfSubjectReview)
			review.CreationTimestamp = metav1.Now()
			review.Status.UserInfo = info
			return nil
		}}
}

func (s *Server) selfSubjectAccessReview() *review {
	return &review{"selfsubjectaccessreview", func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} },
		func(ctx context.Context, obj runtime.Object) error {
			review := obj.(*authorizationv1.SelfSubjectAccessReview)
			res, url := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
			var a access.Attributes
			switch {
			case res != nil && url == nil:
				a = access.Attributes{Verb: res.Verb, APIGroup: res.Group, Resource: res.Resource, Subresource: res.Subresource,
					Namespace: res.Namespace, Name: res.Name}
			case url != nil && res == nil:
				a = access.Attributes{Verb: url.Verb, Path: url.Path}
			default:
				return apierrors.NewBadRequest(
					"exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be given")
			}
			policy, err := s.cfg.Access.Policy(ctx)
			if err != nil {
				return asAPIError(err)
			}
			u := caller(ctx)
			review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: isPublic(a)}
			if !review.Status.Allowed {
				review.Status.Allowed, review.Status.Reason = policy.Allowed(u, a)
			}
			return nil
		}}
}

func (s *Server) selfSubjectRulesReview() *review {
	return &review{"selfsubjectrulesreview", func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} },
		func(ctx context.Context, obj runtime.Object) error {
			policy, err := s.cfg.Access.Policy(ctx)
			if err != nil {
				return asAPIError(err)
			}
			status := authorizationv1.SubjectRulesReviewStatus{
				ResourceRules: []authorizationv1.ResourceRule{
					{Verbs: []string{"create"}, APIGroups: []string{authnGroup.Group}, Resources: []string{"selfsubjectreviews"}},
					{Verbs: []string{"create"}, APIGroups: []string{authzGroup.Group},
						Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
				},
				NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: publicURLs}},
			}
			for _, r := range policy.Rules(caller(ctx)) {
				if len(r.NonResourceURLs) > 0 {
					status.NonResourceRules = append(status.NonResourceRules,
						authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
				} else {
					status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
						Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
					})
				}
			}
			obj.(*authorizationv1.SelfSubjectRulesReview).Status = status
			return nil
		}}
}

// groupsOf returns all groups of a user, with the implied one.
func groupsOf(u *identity.User) []string {
	if g := u.ImpliedGroup(); g != "" {
		return append(slices.Clone(u.Groups), g)
	}
	return u.Groups
}
