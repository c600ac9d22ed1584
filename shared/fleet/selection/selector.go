package selection

import (
	"context"
	"fmt"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Access decides what a user may do. An access.Authorizer implements it.
type Access interface {
	Authorize(ctx context.Context, u *identity.User, a access.Attributes) error
}

// Policy is the part of a Selector that is the same for all requests.
type Policy struct {
	Access       Access
	ControlPlane string // serves the kinds that no registry covers; "" for none
}

func (p Policy) authorize(ctx context.Context, req *request.Request, cluster string) error {
	return p.Access.Authorize(ctx, req.User, access.Cluster(cluster, req.Method, req.Header))
}

// authorizeControlPlane returns an error that does not name the control-plane cluster, since the request does not.
func (s *Selector) authorizeControlPlane(ctx context.Context) error {
	err := s.policy.authorize(ctx, s.req, s.policy.ControlPlane)
	if err == nil || status.From(err).Reason != status.Forbidden {
		return err
	}
	k := s.req.Kind()
	return &status.Error{Reason: status.Forbidden, Err: err,
		Message: fmt.Sprintf("User %q cannot %s %s of %s: no ResourceRegistry covers them for a cluster that you may call, "+
			"and you may not call the control-plane cluster; ask the gateway's administrator", s.req.User.Name,
			s.req.Resource.Verb, k.Resource, k.APIVersion)}
}

// Selector decides which clusters one request covers, according to one Inventory. It is safe for concurrent use.
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

// ControlPlane returns the control-plane cluster, or "" if the request selects clusters.
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
		if s.req.Route.AllClusters || registry.SelectsCluster(s.inventory.Registries, c.Cluster) {
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

// InventoryDigest identifies all clusters and registries, except the status of clusters.
func (s *Selector) InventoryDigest() members.Digest { return s.inventory.Digest }
