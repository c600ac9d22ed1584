// Command bench measures the gateway and direct calls to the same cluster, interleaved in one run, and prints a table.
// Machines are noisy, so only ratios are comparable. Stores on AWS are on moto, which is slower than AWS, so only their
// counts are comparable.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Measure the gateway beside direct calls, interleaved in one run.
Names of parts (calls, aws, streams, idle, fleet, private, hang) leave out the others.

  --hammer-rate N   requests a second to the hanging cluster, in the first run of hang (100); 0 leaves that run out
  --help            print this
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	names := os.Args[1:]
	if len(names) == 2 && names[0] == upstreamCommand {
		exit(serveUpstream(ctx, names[1]))
	}
	if len(names) == 3 && names[0] == reverseProxyCommand {
		exit(serveReverseProxy(ctx, names[1], names[2]))
	}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.Usage = func() { _, _ = fmt.Fprint(flags.Output(), usage) }
	hammerRate := flags.Int("hammer-rate", 100, "")
	_ = flags.Parse(names) // ends the program after an error
	if *hammerRate < 0 || *hammerRate > 10_000 {
		exit(fmt.Errorf("--hammer-rate %d: want 0 to 10000", *hammerRate))
	}
	exit(run(ctx, os.Stdout, flags.Args(), *hammerRate))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
