// Package selection decides which clusters a request for the fleet covers.
//
// Read Selector first, with its main method Targets. Allowed (allowed.go) returns the clusters that the caller selects
// and may call. TargetsAmong (registries.go) returns those of them that a ResourceRegistry covers. Names decides which
// names after an @ are clusters.
//
// Invariants:
//   - A cluster that the caller may not call is never a target, and never named in an answer. The kinds of the
//     control-plane cluster are read for every caller, with the gateway's own credential.
//   - A cluster whose coverage is not known is a target that fails. It is never left out silently.
package selection

import (
	"context"
	"errors"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/forward"
)

// Refresh returns a Selector for the same request with the current Inventory.
func (s *Selector) Refresh(ctx context.Context) (*Selector, error) {
	inv, err := s.client.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	return s.policy.Selector(s.client, s.req, inv), nil
}

// Targets returns the clusters that a request for a resource covers, by name. It returns nil if the request is for the
// control-plane cluster alone.
func (s *Selector) Targets(ctx context.Context) ([]members.Target, error) {
	allowed, err := s.Allowed(ctx)
	if err != nil {
		return nil, err
	}
	return s.TargetsAmong(ctx, allowed)
}

// SkipUnidentifiable drops, with a warning, clusters to which the caller's identity cannot be conveyed, such as those
// of identity passthrough. A request for one object includes them only if it names them. Lists and watches leave out
// clusters that fail by themselves. If no cluster would be left, all stay, so that the request reports their failures.
func (s *Selector) SkipUnidentifiable(h http.Header, targets []members.Target) []members.Target {
	verb := s.req.Resource.Verb
	if s.req.Strict || s.req.Cluster != "" || s.req.Clusters != nil || verb == "list" || verb == "watch" {
		return targets
	}
	var out []members.Target
	var failures []*members.Failure
	for _, t := range targets {
		var e *members.Failure
		if err := forward.MayTell(t.Cluster, s.req.User, ""); err == nil {
			out = append(out, t)
		} else if errors.As(s.client.Fail(s.client.Context(), t.Name, err), &e) {
			failures = append(failures, e)
		}
	}
	if len(out) == 0 {
		return targets
	}
	members.Warn(h, failures)
	return out
}
