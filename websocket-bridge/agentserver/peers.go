package agentserver

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/clusterpass/clusterpass/shared/config"
)

// Peers are the tunnel ports of the bridge's replicas, as host:port. A host may have many addresses.
type Peers []string

// Validate returns a *config.Error that names variable if an entry is invalid.
func (p Peers) Validate(variable string) error {
	for _, peer := range p {
		if err := config.Address(variable, peer); err != nil {
			return err
		}
	}
	return nil
}

// resolveTimeout is the deadline of all DNS lookups of one call.
const resolveTimeout = 2 * time.Second

// addresses returns the sorted address of each replica. Names that do not resolve are ignored.
func (p Peers) addresses(ctx context.Context,
	lookup func(ctx context.Context, host string) ([]string, error)) []string {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	var out []string
	for _, peer := range p {
		host, port, err := net.SplitHostPort(peer)
		if err != nil {
			continue // checked by Validate
		}
		ips, err := lookup(ctx, host)
		if err != nil {
			continue
		}
		for _, ip := range ips {
			out = append(out, net.JoinHostPort(ip, port))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
