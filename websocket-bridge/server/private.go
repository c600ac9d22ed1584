package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/websocket-bridge/agents"
)

// Private configures the tunnels of private clusters. Programs that run a bridge embed it.
type Private struct {
	MaxAgents int          `envconfig:"CLUSTERPASS_MAX_AGENTS" default:"5000" min:"1" desc:"Maximum number of connected agents of private clusters." example:"1000"`
	Peers     agents.Peers `envconfig:"CLUSTERPASS_PEERS" desc:"Tunnel ports of all replicas of the bridge: a comma-separated list of host:port. A host may have many addresses." example:"bridge.clusterpass.internal:8444"`
}

// Agents returns the endpoint of b for the agents of private clusters. Call Close when done.
func (p Private) Agents(b *Bridge, at stores.Address, st *stores.Stores, url string, recheck time.Duration,
	log *slog.Logger) *agents.Agents {
	fresh := passes.Fresh
	if at.Kind == "dir" {
		fresh = cluster.Local.Object
	}
	keys := passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: url, Fresh: fresh, Log: log})
	b.CountCaches(func() map[string]cache.Stats {
		stats := map[string]cache.Stats{}
		for name, s := range keys.Stats() {
			stats["agents_"+name] = s
		}
		return stats
	})
	return agents.New(agents.Config{
		Issuer: &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: url},
		Keys:   keys,
		Peers:  p.Peers, Max: p.MaxAgents, Recheck: recheck, Log: log, Metrics: b.Metrics,
	})
}

// ListenTunnel opens the tunnel port at listen and returns a function that closes it. Clusters have the port's public
// address in their proxyURL.
func ListenTunnel(ctx context.Context, a *agents.Agents, listen string) (closePort func() error, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("CLUSTERPASS_TUNNEL_LISTEN: %w", err)
	}
	return a.Listen(ln).Close, nil
}
