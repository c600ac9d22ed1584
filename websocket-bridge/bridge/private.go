package bridge

import (
	"context"
	"fmt"
	"net"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// Private configures the tunnels of private clusters.
type Private struct {
	MaxAgents int               `envconfig:"CLUSTERPASS_MAX_AGENTS" default:"5000" min:"1" desc:"Maximum number of connected agents of private clusters." example:"1000"`
	Peers     agentserver.Peers `envconfig:"CLUSTERPASS_PEERS" desc:"Tunnel ports of all replicas of the bridge: a comma-separated list of host:port. A host may have many addresses." example:"bridge.clusterpass.internal:8444"`
}

// newAgents uses a verifier with its own caches, so that agents cannot evict the passes of callers. Call Close when
// done.
func (p Private) newAgents(b *Bridge, parts *assembly.Parts) *agentserver.Agents {
	keys := parts.NewVerifier()
	b.CountCaches(func() map[string]cache.Stats {
		stats := map[string]cache.Stats{}
		for name, s := range keys.Stats() {
			stats["agents_"+name] = s
		}
		return stats
	})
	return agentserver.New(agentserver.Config{
		Issuer: parts.NewIssuer(nil), Verifier: keys, Peers: p.Peers, Max: p.MaxAgents, Recheck: b.limits.Recheck,
		Log: parts.Log, Metrics: b.Metrics,
	})
}

func listenTunnel(ctx context.Context, a *agentserver.Agents, listen string) (closePort func() error, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("CLUSTERPASS_TUNNEL_LISTEN: %w", err)
	}
	return a.Listen(ln).Close, nil
}
