package gateway

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

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

// RecordRecording records the id of the session's recording in the audit event. The session then continues if a policy
// that came later requires its recording, until RecordingFailed is called.
func (c *StreamCall) RecordRecording(id string) {
	c.call.audit.Recording(id)
	c.call.isRecorded.Store(true)
}

// RecordingFailed must be called as soon as the recording of a session that continues has failed. It is safe for
// concurrent use.
func (c *StreamCall) RecordingFailed() { c.call.isRecorded.Store(false) }

// RecordUnrecorded records in the audit event why the session's recording is missing or incomplete.
func (c *StreamCall) RecordUnrecorded(reason string) { c.call.audit.Unrecorded(reason) }

// sessionSubresources are those of pods whose sessions the bridge records.
var sessionSubresources = map[string]bool{"exec": true, "attach": true, "portforward": true}

func isSession(res route.Resource) bool {
	return res.IsResource && res.APIGroup == "" && res.Resource == "pods" && sessionSubresources[res.Subresource]
}

// canEvadeRecording reports whether a request could carry a session that nothing records. Proxy subresources reach
// kubelets, which run commands, and applications with terminals of their own. An upgraded connection may have any
// protocol, except for those of logs of pods and of watches.
func canEvadeRecording(req route.Request, h http.Header) bool {
	res := req.Resource
	switch {
	case addsDebugContainer(res) || reachesFurther(req):
		return true
	case !req.IsStream || isSession(res):
		return false
	case res.Verb == "proxy" || res.Subresource == "proxy" || sessionSubresources[res.Subresource]:
		return true
	}
	isLog := res.APIGroup == "" && res.Resource == "pods" && res.Subresource == "log"
	isWatch := res.Verb == "watch" && res.Name == "" && res.Subresource == ""
	return len(h["Upgrade"]) > 0 && !isLog && !isWatch
}

// reachesFurther reports whether a request could reach another cluster through a member that is a gateway itself, such
// as /clusters/NAME/api/v1/nodes/NODE/proxy/run. The same is assumed of each path with segments after a subresource:
// one of Karpor's forms is /apis/kusionstack.io/Cluster/NAME/proxy/PATH. Of Kubernetes' own API, only proxies of nodes,
// pods and services have such paths. Those of an aggregated API are refused, too, even if they only read.
func reachesFurther(req route.Request) bool {
	if req.Resource.IsResource {
		return req.Resource.Tail != "" && !isSession(req.Resource)
	}
	path, err := url.PathUnescape(req.Route.Path)
	return err != nil || slices.ContainsFunc(strings.Split(path, "/"), func(segment string) bool {
		return segment == "proxy" || segment == debugContainers
	})
}

const debugContainers = "ephemeralcontainers"

// addsDebugContainer reports whether a request may add an ephemeral container to a pod. Its command needs no session to
// run, and its output is then only in the logs.
func addsDebugContainer(res route.Resource) bool {
	isWrite := res.Verb != "get" && res.Verb != "list" && res.Verb != "watch"
	return res.IsResource && res.APIGroup == "" && res.Resource == "pods" && res.Subresource == debugContainers && isWrite
}

// recordingRule returns the rule for a request to the cluster of c, or to any cluster of the fleet.
func (g *Gateway) recordingRule(ctx context.Context, c *call) (policy.Rule, error) {
	if g.cfg.Recordings == nil {
		return policy.Rule{}, nil
	}
	namespace, _, _ := strings.Cut(c.request.Resource.Namespace, "@") // the fleet has NAMESPACE@CLUSTER
	return g.cfg.Recordings.For(ctx, policy.Call{
		User: c.user, Cluster: c.request.Route.Cluster, Namespace: namespace,
	})
}

// checkRecordingEvasion refuses a request for which c.canEvadeRecording is true, if a policy requires recordings.
func (g *Gateway) checkRecordingEvasion(ctx context.Context, c *call) error {
	if g.cfg.Recordings == nil || !c.canEvadeRecording {
		return nil
	}
	rule, err := g.recordingRule(ctx, c)
	if err != nil || rule.Level != policy.Required {
		return err
	}
	if addsDebugContainer(c.request.Resource) {
		return status.New(status.Forbidden, c.request.Route.Cluster,
			"the call was refused: RecordingPolicy %q requires recordings of your sessions, and a debug container can run "+
				"a command without one; use exec or attach", rule.Policy)
	}
	return status.New(status.Forbidden, c.request.Route.Cluster,
		"the call was refused: RecordingPolicy %q requires recordings of your sessions, and this connection could carry "+
			"one that cannot be recorded; use exec, attach or port-forward of pods", rule.Policy)
}

// checkUnrecorded refuses to continue a session without a recording if a policy that came later requires one.
func (g *Gateway) checkUnrecorded(ctx context.Context, c *call) error {
	if g.cfg.Recordings == nil || c.rule.Level == policy.Required || c.isRecorded.Load() ||
		!isSession(c.request.Resource) {
		return nil
	}
	rule, err := g.recordingRule(ctx, c)
	if err != nil || rule.Level != policy.Required {
		return err
	}
	return status.New(status.Forbidden, c.request.Route.Cluster,
		"the session was ended: RecordingPolicy %q now requires its recording; call again", rule.Policy)
}
