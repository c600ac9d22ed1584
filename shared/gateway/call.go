package gateway

import (
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// call is the state of one request in progress. One goroutine uses it.
type call struct {
	request route.Request
	user    *identity.User // nil if unknown
	bearer  string         // the token for a cluster of identity passthrough; "" for other clusters

	release    func()         // releases the caller's slot; never nil, and safe to call twice
	unverified UnverifiedCall // limits a bearer token that only the member can check; nil without a limit

	audit      *audit.Request // nil without an audit log
	response   http.Header
	err        *status.Error
	ended      *status.Error // why the gateway ended a stream
	reached    string        // clusters that a fleet request read or changed, separated by commas
	staleReads uint64        // of caches, before the request; only in a function
}

func newCall(q *audit.Request, response http.Header) *call {
	return &call{audit: q, response: response, release: func() {}}
}

// end releases every slot of the call.
func (c *call) end() {
	c.release()
	if c.unverified != nil {
		c.unverified.End()
	}
}

// setRequest sets the request, and records its target in the audit event.
func (c *call) setRequest(req route.Request) {
	c.request = req
	c.audit.Target(req.Route.Cluster, req.Resource)
}

// healthPaths are paths of the gateway itself that respond even if audit events cannot be recorded.
var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// admitToAudit returns a *status.Error if the request is refused because its audit event cannot be recorded.
func (c *call) admitToAudit(r *http.Request) error {
	if c.request.Route.Kind == route.Gateway && slices.Contains(healthPaths, c.request.Route.Path) {
		return nil
	}
	return c.audit.Admit(r.Context())
}

// setAuditID writes the id of the audit event into the request and the response. It replaces any id of the client.
func (c *call) setAuditID(r *http.Request) {
	if c.audit.ID() == "" {
		r.Header.Del(audit.IDHeader)
		return
	}
	r.Header.Set(audit.IDHeader, c.audit.ID())
	c.response.Set(audit.IDHeader, c.audit.ID())
}

// responseObserver returns the observer of a member's response. It is nil for authenticated callers, and for OPTIONS,
// which a member may serve before it checks the token.
func (c *call) responseObserver(method string) forward.ResponseObserver {
	if c.unverified == nil || method == http.MethodOptions {
		return nil
	}
	return c.unverified
}
