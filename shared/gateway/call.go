package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// call is the state of one request. It is not safe for concurrent use.
type call struct {
	started time.Time
	request route.Request
	user    *identity.User // nil unless the gateway identified the caller
	caller  *identity.User // the user of the credential, who may impersonate user; nil if user is nil
	bearer  string         // the caller's own token for a passthrough cluster; "" for other clusters
	rule    policy.Rule    // how the session is recorded; zero for requests that are no session
	// canEvadeRecording reports whether the request could carry a session that nothing records. If a policy requires
	// recordings, checkRecordingEvasion then refuses the request.
	canEvadeRecording bool
	isRecorded        atomic.Bool // a recorder records the session, and has not failed

	release    func()         // releases the caller's slot; never nil, and safe to call twice
	unverified UnverifiedCall // slots of a caller whom only the member can identify; nil for others, or without a limit

	forwarded       forward.Call
	audit           *audit.Request // nil without an audit log
	responseHeader  http.Header
	err             *status.Error
	endReason       *status.Error // why the gateway ended a stream
	reachedClusters string        // comma-separated clusters from RecordClusters; only for the fleet
}

func newCall(q *audit.Request, responseHeader http.Header) *call {
	return &call{started: time.Now(), audit: q, responseHeader: responseHeader, release: func() {}}
}

func (c *call) end() {
	c.release()
	if c.unverified != nil {
		c.unverified.End()
	}
}

// isIdentified reports whether the gateway or a member identified the caller. code is the response's status code. A
// member's own response identifies the caller unless code is 401.
func (c *call) isIdentified(code int) bool {
	isByMember := c.bearer != "" && (c.err == nil || c.err.Code() != code)
	return c.user != nil || isByMember && code != http.StatusUnauthorized
}

func (c *call) setRequest(req route.Request) {
	c.request = req
	c.audit.Target(req.Route.Cluster, req.Resource)
}

// healthPaths respond even if audit events cannot be recorded.
var healthPaths = []string{"/healthz", "/livez", "/readyz"}

func (c *call) admitToAudit(r *http.Request) error {
	if c.request.Route.Kind == route.Gateway && slices.Contains(healthPaths, c.request.Route.Path) {
		return nil
	}
	return c.audit.Admit(r.Context())
}

// setAuditID sets the Audit-Id header of request and response to the ID of the audit event. Without an audit log, the
// ID is a new one, which the audit log of a member and a recording contain.
func (c *call) setAuditID(r *http.Request) {
	id := cmp.Or(c.audit.ID(), c.responseHeader.Get(audit.IDHeader))
	if id == "" {
		id = uuid.NewString()
	}
	r.Header.Set(audit.IDHeader, id)
	c.responseHeader.Set(audit.IDHeader, id)
}

// responseObserver returns nil for OPTIONS: a member may respond to it without a check of the token.
func (c *call) responseObserver(method string) forward.ResponseObserver {
	if c.unverified == nil || method == http.MethodOptions {
		return nil
	}
	return c.unverified
}
