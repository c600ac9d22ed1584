// Command bench measures the gateway beside direct calls to the same cluster, interleaved in one run, and prints a table.
// Machines are noisy: read the ratios. Where the stores are on AWS they are on moto, which is slower than AWS: read the counts.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const usage = `Measure the gateway beside direct calls, interleaved in one run.
Names of parts (calls, streams, idle, fleet, private, hang) leave out the others.

  --help   print this
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	names := os.Args[1:]
	if len(names) == 2 && names[0] == upstreamCommand {
		exit(serveUpstream(ctx, names[1]))
	}
	if len(names) == 2 && names[0] == reverseProxyCommand {
		exit(serveReverseProxy(ctx, names[1]))
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		_, _ = fmt.Fprint(os.Stdout, usage)
		if names[0] != "--help" && names[0] != "-h" {
			os.Exit(2)
		}
		return
	}
	exit(run(ctx, os.Stdout, names))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
