// Command clusterpass-agent runs in a private cluster and makes it reachable through the gateway.
package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/clusterpass/clusterpass/shared/config/flags"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/server"
)

const about = `The Clusterpass agent runs in a private cluster. It connects to the gateway's bridge, and forwards
the gateway's requests to the cluster's API server. It uses HTTPS_PROXY and NO_PROXY.
The command "clusterpass cluster join --pull" prints a manifest for it.`

func main() {
	cfg := &server.Config{}
	flags.Main(about, cfg, func() error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return server.Run(ctx, cfg)
	})
}
