// Package selection decides which clusters a request for the fleet covers.
//
// Read Selector first, with its main method Targets. Allowed (allowed.go) returns the clusters that the caller selects
// and may call. TargetsAmong (registries.go) returns those of them that a ResourceRegistry covers. Names decides which
// names after an @ are clusters.
//
// Invariants:
//   - A cluster that the caller may not call is never called, and never named in an answer.
//   - A cluster whose coverage is not known is a target that fails. It is never left out silently.
package selection

import (
	"context"
	"errors"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Access decides what a user may do. An access.Authorizer implements it.
type Access interface {
	Authorize(ctx context.Context, u *identity.User, a access.Attributes) error
}

// Policy is the part of a Selector that is the same for all requests.
type Policy struct {
	Access Access
	// ControlPlane is the cluster that serves the kinds which no registry covers; "" for none.
	ControlPlane string
}

// authorize returns nil if the caller may send the request to a cluster, whether it exists or not.
func (p Policy) authorize(ctx context.Context, req *request.Request, cluster string) error {
	return p.Access.Authorize(ctx, req.User, access.Cluster(cluster, req.Method, req.Header))
}

// Selector decides which clusters one request covers, by one Inventory. It is safe for concurrent use.
type Selector struct {
	policy    Policy
	client    *members.Client
	req       *request.Request
	inventory *members.Inventory
}

// Selector returns a Selector for a request.
func (p Policy) Selector(client *members.Client, req *request.Request, inv *members.Inventory) *Selector {
	return &Selector{p, client, req, inv}
}

// Refresh returns a Selector for the same request, by the present Inventory.
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

// ControlPlane returns the control-plane cluster if the request may be for it, or "". A request that selects clusters
// may be for others.
func (s *Selector) ControlPlane() string {
	if s.req.NarrowsClusters() {
		return ""
	}
	return s.policy.ControlPlane
}

// IsBare reports whether the request names no cluster of a fleet that has several.
func (s *Selector) IsBare() bool {
	if s.req.NamesCluster() {
		return false
	}
	size := 0
	for _, c := range s.inventory.Clusters {
		if s.req.Route.AllClusters || registry.Chooses(s.inventory.Registries, c.Cluster) {
			size++
		}
	}
	return size > 1
}

// CoversAll reports whether the request covers everything in a cluster, without a registry.
func (s *Selector) CoversAll(c members.Entry) bool {
	return s.req.Route.AllClusters || c.Name == s.policy.ControlPlane
}

// Scope returns the scope in which registries cover a kind in a cluster.
func (s *Selector) Scope(c members.Entry, k registry.Kind) registry.Scope {
	return registry.ScopeOf(s.inventory.Registries, c.Cluster, k)
}

// InventoryDigest identifies the versions of all clusters and registries.
func (s *Selector) InventoryDigest() string { return s.inventory.Digest }

// SkipUnidentifiable drops, with a warning, clusters to which the caller's identity cannot be conveyed, such as those
// of identity passthrough. A request for one object includes them only if it names them. Lists and watches leave out
// clusters that fail by themselves. If no cluster would be left, all stay and the request fails by them.
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

// Names decides for one request which names after an @ are clusters. A cluster that the caller may not call does not
// exist for them. It decides once for each cluster, since a body may have 100,000 names. It is not safe for concurrent
// use.
type Names struct {
	inventory *members.Inventory
	authorize func(cluster string) error
	decided   map[string]bool
	err       error
}

// Names returns the Names of a request. ctx must cover all calls of Known.
func (p Policy) Names(ctx context.Context, req *request.Request, inv *members.Inventory) *Names {
	return &Names{
		inventory: inv, decided: map[string]bool{},
		authorize: func(cluster string) error { return p.authorize(ctx, req, cluster) },
	}
}

// Known reports whether the caller may call a cluster of that name.
func (n *Names) Known(cluster string) bool {
	if !n.inventory.Has(cluster) {
		return false
	}
	known, decided := n.decided[cluster]
	if !decided {
		known = n.isAllowed(cluster)
		n.decided[cluster] = known
	}
	return known
}

func (n *Names) isAllowed(cluster string) bool {
	err := n.authorize(cluster)
	if err != nil && status.From(err).Reason != status.Forbidden {
		n.err = err
	}
	return err == nil
}

// Err returns why a result of Known may be wrong, since access could not be decided.
func (n *Names) Err() error { return n.err }
