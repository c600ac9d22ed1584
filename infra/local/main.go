// Command local runs the whole gateway on one machine: front door, functions and bridge.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/config"
)

const about = `Clusterpass on one machine: the front door with HTTPS, the functions run as AWS Lambda runs them, and the bridge.
It registers the contexts of KUBECONFIG, writes clusterpass.kubeconfig into the current directory and says what to type next.`

func main() {
	cfg := &server.Config{}
	config.Main(about, cfg, func() error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		context.AfterFunc(ctx, func() {
			stop() // a second ctrl-C ends at once
			fmt.Fprintf(os.Stderr, "Ending; open calls have %v. ctrl-C again ends at once.\n", cfg.DrainTimeout)
		})
		return server.Run(ctx, cfg, server.Output{Progress: os.Stdout}, func() {})
	})
}
