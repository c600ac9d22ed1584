// Command websocket-bridge is the container that holds what functions cannot.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/websocket-bridge/server"
)

const about = "Clusterpass bridge: answers every call that a function answers, and those that stream."

func main() {
	cfg := &server.Config{}
	config.Main(about, cfg, func() error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return server.Run(ctx, cfg, os.Stderr)
	})
}
