package selection

import (
	"context"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Names decides for one request which names after an @ are clusters that the caller may call. It decides once for each
// cluster, since a body may have 100,000 names. It is not safe for concurrent use.
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
