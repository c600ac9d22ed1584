package gateway

import (
	"context"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// RecordingPolicies decides which sessions are recorded. policy.Policies implements it.
type RecordingPolicies interface {
	For(ctx context.Context, c policy.Call) (policy.Rule, error)
}

// StreamCall is a request that stays open, to one member.
type StreamCall struct {
	*forward.Call
	// Rule is how a session must be recorded. It is zero for requests that are no session.
	Rule policy.Rule
	// Caller is the authenticated user, who may impersonate Call.User. It is nil if only the member identifies callers.
	Caller *identity.User

	call *call
}

// RecordRecording records the id of the session's recording in the audit event.
func (c *StreamCall) RecordRecording(id string) { c.call.audit.Recording(id) }

// RecordUnrecorded records in the audit event why the session's recording is missing or incomplete.
func (c *StreamCall) RecordUnrecorded(reason string) { c.call.audit.Unrecorded(reason) }

// sessionSubresources are those of pods whose sessions the bridge records.
var sessionSubresources = map[string]bool{"exec": true, "attach": true, "portforward": true}

func isSession(res route.Resource) bool {
	return res.IsResource && res.APIGroup == "" && res.Resource == "pods" && sessionSubresources[res.Subresource]
}

// canHideSession reports whether a request could carry a session that nothing records. Proxy subresources reach
// kubelets, which run commands, and applications with terminals of their own. An upgraded connection may have any
// protocol, except for those of logs and watches.
func canHideSession(req route.Request, h http.Header) bool {
	res := req.Resource
	switch {
	case !req.IsStream || isSession(res):
		return false
	case res.Verb == "proxy" || res.Subresource == "proxy" || sessionSubresources[res.Subresource]:
		return true
	}
	return len(h["Upgrade"]) > 0 && res.Subresource != "log" && (res.Verb != "watch" || res.Subresource != "")
}

// recordingRule returns the rule for a request to the cluster of c.
func (g *Gateway) recordingRule(ctx context.Context, c *call) (policy.Rule, error) {
	if g.cfg.Recordings == nil {
		return policy.Rule{}, nil
	}
	return g.cfg.Recordings.For(ctx, policy.Call{
		User: c.user, Cluster: c.request.Route.Cluster, Namespace: c.request.Resource.Namespace,
	})
}

// checkHiddenSession refuses a request that could hide a session, if a policy requires recordings.
func (g *Gateway) checkHiddenSession(ctx context.Context, c *call) error {
	if g.cfg.Recordings == nil || !c.canHideSession {
		return nil
	}
	rule, err := g.recordingRule(ctx, c)
	if err != nil || rule.Level != policy.Required {
		return err
	}
	return status.New(status.Forbidden, c.request.Route.Cluster,
		"the call was refused: RecordingPolicy %q requires recordings of your sessions, and this connection could carry "+
			"one that cannot be recorded; use exec, attach or port-forward of pods", rule.Policy)
}

// checkUnrecorded refuses to continue a session if a policy that came later requires its recording.
func (g *Gateway) checkUnrecorded(ctx context.Context, c *call) error {
	if g.cfg.Recordings == nil || c.rule.Level == policy.Required || !isSession(c.request.Resource) {
		return nil
	}
	rule, err := g.recordingRule(ctx, c)
	if err != nil || rule.Level != policy.Required {
		return err
	}
	return status.New(status.Forbidden, c.request.Route.Cluster,
		"the session was ended: RecordingPolicy %q now requires its recording; call again", rule.Policy)
}
