package gateway

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// Unverified limits calls with bearer tokens that only a member cluster can check. It is safe for concurrent use.
type Unverified interface {
	// Begin counts a call to a cluster whose body has not arrived yet. The error is a *status.Error.
	Begin(source limits.Source, cluster, bearer string) (UnverifiedCall, error)
}

// UnverifiedCall is a call with a bearer token that only a member can check. It is not safe for concurrent use.
type UnverifiedCall interface {
	// IsAccepted reports whether the cluster accepted the token lately.
	IsAccepted() bool
	// Enter counts the call as one in flight, once its body has arrived. The error is a *status.Error.
	Enter() error
	// Answered records the status code of the member's response. It may be called several times.
	Answered(code int)
	// End ends the count, of a stream too.
	End()
}

// receive reads the body of a call that only the member can authenticate, before the call counts as one in flight.
// Otherwise a client with a made-up token could occupy a slot by a body that it never sends.
func (g *Gateway) receive(r *http.Request, c *call) (*http.Request, error) {
	switch {
	case c.user != nil:
		return r, nil // identify has counted the call
	case g.cfg.Unverified == nil:
		return r, g.enter(c)
	}
	u, err := g.cfg.Unverified.Begin(limits.SourceFrom(r.Context()), c.route.Cluster, c.bearer)
	if err != nil {
		return r, err
	}
	c.unverified = u
	received, err := forward.ReceiveBody(r, !u.IsAccepted())
	if err != nil {
		return r, err
	}
	if err := u.Enter(); err != nil {
		return r, err
	}
	return received, g.enter(c)
}

// answered returns what records the member's response to a call, and nil for calls of known callers. A member may
// answer OPTIONS before it checks the token.
func (c *call) answered(method string) func(code int) {
	if c.unverified == nil || method == http.MethodOptions {
		return nil
	}
	return c.unverified.Answered
}

// end gives back all that the call was counted for.
func (c *call) end() {
	c.leave()
	if c.unverified != nil {
		c.unverified.End()
	}
}
