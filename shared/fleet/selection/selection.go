// Package selection decides which clusters a request for the fleet covers. Read Selector.Targets first.
//
// Invariants:
//   - A cluster that the caller may not call is never a target, and never named in an answer.
//   - Kinds are read with the gateway's own credential. Those of the control-plane cluster are read even if the caller
//     may not call it.
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

// Targets returns the covered clusters, sorted by name; nil if the request is for the control-plane cluster alone.
func (s *Selector) Targets(ctx context.Context) ([]members.Target, error) {
	allowed, err := s.Allowed(ctx)
	if err != nil {
		return nil, err
	}
	return s.TargetsAmong(ctx, allowed)
}

// SkipUnidentifiable drops, with a warning, clusters to which the caller's identity cannot be conveyed. They stay, and
// fail later, if none would be left. They also stay for lists, watches, strict requests, and requests that name
// clusters.
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
