package agents

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/clusterpass/clusterpass/shared/config"
)

// Peers are the tunnel ports of a bridge's replicas: host:port, where a host may have many addresses.
type Peers []string

// Validate returns a *config.Error of the variable that holds them.
func (p Peers) Validate(variable string) error {
	for _, peer := range p {
		if err := config.Address(variable, peer); err != nil {
			return err
		}
	}
	return nil
}

// resolveTimeout bounds a question to the DNS.
const resolveTimeout = 2 * time.Second

// addresses returns the address of each replica. Names that do not resolve now have none.
func (p Peers) addresses(ctx context.Context,
	lookup func(ctx context.Context, host string) ([]string, error)) []string {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	var out []string
	for _, peer := range p {
		host, port, err := net.SplitHostPort(peer)
		if err != nil {
			continue // Validate has seen it
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
