package gateway

import (
	"context"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/identity"
)

// TokenRecognizer recognizes bearer tokens of other issuers. It is safe for concurrent use.
type TokenRecognizer interface {
	// IsForGateway reports whether a token claims to be valid at this gateway. Such a token is never forwarded to a
	// member, which could use it here.
	IsForGateway(token string) bool
}

// isGatewayToken reports whether a token may be valid at the gateway itself. It verifies nothing.
func (g *Gateway) isGatewayToken(token string) bool {
	return g.cfg.Passes != nil && g.cfg.Passes.HasGatewayIssuer(token) ||
		g.cfg.Tokens != nil && g.cfg.Tokens.IsForGateway(token) || identity.IsEKSToken(token)
}

// identify authenticates the caller, applies impersonation, and counts the call for the resulting user.
func (g *Gateway) identify(r *http.Request, c *call) error {
	caller, err := g.cfg.Identity.Authenticate(r)
	if err != nil {
		return err
	}
	c.caller, c.user = caller, caller // user is for the log, if the next step fails
	c.audit.User(auditUser(caller), caller.Method)
	c.setAuditID(r) // a front proxy chooses its own
	if err := c.audit.AdmitCaller(r.Context()); err != nil {
		return err
	}
	user, err := g.impersonated(r.Context(), r.Header, caller)
	if err != nil {
		return err
	}
	if c.user = user; user != caller {
		c.audit.As(auditUser(user))
	}
	return g.admitCaller(c)
}

func (g *Gateway) authorize(ctx context.Context, u *identity.User, a access.Attributes) error {
	return g.cfg.Access.Authorize(ctx, u, a)
}

func auditUser(u *identity.User) audit.User {
	return audit.User{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
