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

// impersonated returns whom the caller asks to be (--as, --as-group, --as-uid), or the caller. Each part needs the verb
// impersonate, as in Kubernetes; a wish that cannot be understood whole is refused whole.
func (g *Gateway) impersonated(ctx context.Context, h http.Header, caller *identity.User) (*identity.User, error) {
	asked, err := askedUser(h)
	if err != nil || asked == nil {
		return caller, err
	}
	needed := access.Impersonation(asked) // of what is asked, before the gateway adds to it
	may := func(ctx context.Context) error {
		for _, n := range needed {
			if err := g.authorize(ctx, caller, n); err != nil {
				return err
			}
		}
		return nil
	}
	if err := may(ctx); err != nil {
		return nil, err
	}
	if len(asked.Groups) == 0 {
		asked.Groups = identity.ServiceAccountGroups(asked.Name)
	}
	asked.Extra[identity.ExtraOriginalUser] = []string{caller.Name}
	asked.Impersonator, asked.Method, asked.Expires = caller.Name, caller.Method, caller.Expires
	asked.Scope = caller.Scope
	asked.Recheck = func(ctx context.Context) error { // both hold, or it ends: the caller's credential and the right to act as another
		if err := checkCredential(ctx, caller); err != nil {
			return err
		}
		return may(ctx)
	}
	return asked, nil
}

// askedUser reads the impersonation headers; nil where there are none.
func askedUser(h http.Header) (*identity.User, error) {
	u := &identity.User{Extra: map[string][]string{}}
	found := false
	for name, values := range h {
		if !forward.HasPrefix(name, "Impersonate-") {
			continue
		}
		found = true
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
		default: // another spelling, or several values where there is one
			return nil, status.New(status.BadRequest, "", "the header %s cannot be understood", name)
		}
	}
	if !found {
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
