package review

import (
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/identity"
)

func (h *Handler) serveSubject(w http.ResponseWriter) error {
	if err := h.read(request.SubjectReview, &authenticationv1.SelfSubjectReview{}); err != nil {
		return err
	}
	status := authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(h.Request.User)}
	return write(w, request.SubjectReview, nil, status)
}

func userInfo(u *identity.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	if implied := u.ImpliedGroup(); implied != "" {
		info.Groups = append(slices.Clip(info.Groups), implied)
	}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}
