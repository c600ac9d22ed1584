// Command local runs the whole gateway on one machine: HTTPS server, functions and bridge.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/clusterpass/clusterpass/infra/local/plugin"
	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/infra/local/terminal"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/config/flags"
	"github.com/clusterpass/clusterpass/shared/heap"
)

const about = `Clusterpass on one machine: one process that serves HTTPS.
It registers the contexts of KUBECONFIG as clusters, writes clusterpass.kubeconfig into the current directory, and
prints the next command to type. It runs the credential plugins of these contexts, as kubectl does.`

func main() {
	plugin.Main()
	cfg := &server.Config{}
	flags.Main(about, cfg, func() error {
		heap.BoundGrowth()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		context.AfterFunc(ctx, func() {
			stop() // a second ctrl-C ends at once
			fmt.Fprintf(os.Stderr, "Shutting down: open requests have %v to end. Press ctrl-C again to exit now.\n",
				cfg.DrainTimeout)
		})
		out, ready := server.Output{Progress: os.Stdout, Log: os.Stderr}, func() {}
		if term.IsTerminal(int(os.Stderr.Fd())) {
			log := terminal.NewLog(os.Stderr)
			defer log.Release()
			out.Log, ready = log, log.Release
		}
		klog.SetSlogLogger(apiconfig.MachineryLog(cfg.NewLog(out.Log)))
		return server.Run(ctx, cfg, out, ready)
	})
}
