// Command fleetcheck sends random writes through the fleet and the same writes to the clusters directly. It compares
// lists, pages, watches and errors, while it disturbs the clusters. Read run.go first, then compare.go.
//
// Invariants:
//   - Every random decision comes from the seed. Each operation has a stream of its own, so that timing changes none.
//   - A comparison at rest waits until every registered cluster answers, and fails only then.
//   - While a cluster is down, only the documented behaviour is expected.
//   - The controllers of the clusters do not run, so that nothing else writes the compared objects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const usage = `Compare the fleet with its clusters: random writes, lists, pages and watches, through faults.

  --seed N         repeat the run of that seed (default: a random one, which is printed)
  --duration TIME  begin no round after that time (default 1m)
  --clusters N     number of clusters, 2 to 9 (default 3)
  --no-faults      do not disturb the clusters
  --v              print every operation
  --help           print this

A failure prints the seed, the last operations and the difference. The exit code is 1 then, and 2 for wrong flags.
`

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // gateways in this process link k8s.io/apiserver
	o := options{seed: rand.Uint64(), out: os.Stdout}
	flags := flag.NewFlagSet("fleetcheck", flag.ContinueOnError)
	flags.Usage = func() { _, _ = fmt.Fprint(os.Stdout, usage) }
	flags.Uint64Var(&o.seed, "seed", o.seed, "")
	flags.DurationVar(&o.duration, "duration", time.Minute, "")
	flags.IntVar(&o.clusters, "clusters", 3, "")
	flags.BoolVar(&o.calm, "no-faults", false, "")
	flags.BoolVar(&o.verbose, "v", false, "")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil, flags.NArg() > 0, o.clusters < 2, o.clusters > 9:
		_, _ = fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := check(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
