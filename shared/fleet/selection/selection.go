// Package selection decides which clusters a request for the fleet covers. Read Selector.Targets first.
//
// Invariants:
//   - A cluster that the caller may not call is never a target. A response names it only if the request did.
//   - The gateway reads the kind of a resource with its own credential, in the control-plane cluster even if the caller
//     may not call that cluster.
//   - A cluster that cannot report the kind becomes a target that fails, if a ResourceRegistry covers one of the
//     possible kinds in it. See possibleKinds and dropPartlyCovered.
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

// Targets returns the covered clusters, sorted by name. It returns nil if the control-plane cluster alone serves the
// request. It then fails if the caller may not call that cluster.
func (s *Selector) Targets(ctx context.Context) ([]members.Target, error) {
	allowed, err := s.Allowed(ctx)
	if err != nil {
		return nil, err
	}
	targets, err := s.TargetsAmong(ctx, allowed)
	if err != nil || targets != nil {
		return targets, err
	}
	return nil, s.authorizeControlPlane(ctx)
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
