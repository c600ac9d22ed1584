// Command demo shows the main job on this machine: two real clusters, one gateway, one kubeconfig, real kubectl.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Show Clusterpass on this machine: start two real Kubernetes clusters, register them, start ` +
	`the gateway, and use it.

  --exit   end after the walk, instead of staying up until ctrl-C
  --help   print this
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	show, exit := run, false
	for _, arg := range os.Args[1:] {
		switch arg {
		case "--exit":
			exit = true
		case "--site":
			show = func(ctx context.Context, _ bool) error { return site(ctx) }
		case "-h", "--help":
			_, _ = fmt.Fprint(os.Stdout, usage)
			return
		default:
			fmt.Fprintf(os.Stderr, "unknown argument %q\n\n%s", arg, usage)
			os.Exit(2)
		}
	}
	if err := show(ctx, exit); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}
