package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

const extraPrefix = "Impersonate-Extra-"

// impersonated returns the user that the caller impersonates (--as, --as-group, --as-uid), or the caller. Each part
// needs the verb impersonate, as in Kubernetes.
func (g *Gateway) impersonated(ctx context.Context, h http.Header, caller *identity.User) (*identity.User, error) {
	user, err := impersonationTarget(h)
	if err != nil || user == nil {
		return caller, err
	}
	needed := access.Impersonation(user) // before the gateway adds to the user
	check := func(ctx context.Context) error {
		for _, n := range needed {
			if err := g.authorize(ctx, caller, n); err != nil {
				return err
			}
		}
		return nil
	}
	if err := check(ctx); err != nil {
		return nil, err
	}
	if len(user.Groups) == 0 {
		user.Groups = identity.ServiceAccountGroups(user.Name)
	}
	user.Extra[identity.ExtraOriginalUser] = []string{caller.Name}
	user.Impersonator, user.Method, user.Expires = caller.Name, caller.Method, caller.Expires
	user.ImpersonatorGroups = append(slices.Clone(caller.Groups), caller.ImpliedGroup())
	user.Scope = caller.Scope
	// A stream needs both the caller's credential and the right to impersonate.
	user.Recheck = func(ctx context.Context) error {
		if err := checkCredential(ctx, caller); err != nil {
			return err
		}
		return check(ctx)
	}
	return user, nil
}

// impersonationTarget returns nil without impersonation headers. It refuses those that it does not understand.
func impersonationTarget(h http.Header) (*identity.User, error) {
	var u *identity.User
	for name, values := range h {
		if !forward.HasPrefix(name, "Impersonate-") {
			continue
		}
		if u == nil {
			u = &identity.User{Extra: map[string][]string{}}
		}
		switch {
		case name == "Impersonate-User" && len(values) == 1:
			u.Name = values[0]
		case name == "Impersonate-Uid" && len(values) == 1:
			u.UID = values[0]
		case name == "Impersonate-Group":
			u.Groups = slices.Clone(values)
		case strings.HasPrefix(name, extraPrefix):
			key, ok := identity.ExtraKey(name[len(extraPrefix):])
			if !ok {
				return nil, status.New(status.BadRequest, "", "the header %s cannot be understood", name)
			}
			u.Extra[key] = slices.Clone(values)
		default: // another spelling, or several values of a single-valued header
			return nil, status.New(status.BadRequest, "", "the header %s cannot be understood", name)
		}
	}
	if u == nil {
		return nil, nil
	}
	if u.Name == "" {
		return nil, status.New(status.BadRequest, "", "impersonation (--as-group, --as-uid) needs a user (--as)")
	}
	if slices.Contains(u.Groups, "") {
		return nil, status.New(status.BadRequest, "", "the header Impersonate-Group is empty")
	}
	return u, nil
}
