// Command websocket-bridge serves the whole gateway from a container, including streams, which functions cannot serve.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/config/flags"
	"github.com/clusterpass/clusterpass/shared/heap"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

const about = "Clusterpass bridge: serves all requests of the gateway, including streams, which functions cannot serve."

func main() {
	cfg := &bridge.Config{}
	flags.Main(about, cfg, func() error {
		heap.BoundGrowth()
		klog.SetSlogLogger(apiconfig.MachineryLog(cfg.NewLog(os.Stderr)))
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return bridge.Run(ctx, cfg, os.Stderr)
	})
}
