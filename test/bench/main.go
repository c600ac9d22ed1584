// Command bench measures the gateway and direct calls to the same cluster, interleaved in one run, and prints a table.
// Machines are noisy, so only ratios are comparable. Stores on AWS are on moto, which is slower than AWS, so only their
// counts are comparable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const usage = `Measure the gateway and direct calls to the same cluster, interleaved in one run.

Usage: bench [--hammer-rate N] [--watch-time DURATION] [--watch-rate N] [--write FILE] [PART]...
       bench --cluster FILE [--peer NAME=URL]... [--write FILE]
       bench --check-scale

Without a PART, all are measured:
  coldstart  starts of the functions
  idle       memory and CPU of idle streams
  far        lists of clusters that are slower than this machine
  hang       requests to one cluster while another one hangs
  calls      requests to one cluster, directly, through a bare reverse proxy and through the gateway
  warm       requests through a running function
  aws        first and later requests to a gateway with its stores on an emulator of AWS
  streams    streams, directly, through a bare reverse proxy and through the gateway
  recordings sessions whose recording is required, beside others
  fleet      lists and watches of many clusters
  gzip       lists with and without gzip, by the client's bandwidth
  private    the overhead of a private cluster's tunnel
  churn      a watch of 500 clusters with events, beside three real ones
  scale      500 clusters with a million objects

  --hammer-rate N   requests per second to the hanging cluster in the first run of hang (default: 100); 0 omits it
  --watch-time D    duration of the watch of churn (default: 1m)
  --watch-rate N    events per second of each cluster in that watch (default: 1); fractions are allowed
  --cluster FILE    kubeconfig of a cluster for the part calls, instead of a new one. The run creates and deletes its
                    namespace bench
  --peer NAME=URL   URL of that cluster at another gateway, or a kubeconfig; may be repeated. An HTTPS URL is used with
                    the CA and the credential of --cluster, an HTTP URL without a credential
  --check-scale     check lists and a watch of 100 clusters, instead of measuring
  --write FILE      also write a page with the tables and plots: docs/benchmarks.md. It keeps the figures of parts that
                    are not measured, or that fail
  --help            print this help

With BENCH_PROFILES=DIR, gateways and bare proxies in processes of their own write profiles of CPU, locks and heap to
DIR. make profile uses those of the CPU.
`

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // gateways in this process link k8s.io/apiserver
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	names := os.Args[1:]
	if command := commandOf(names); command != nil {
		exit(command(ctx))
	}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.Usage = func() { _, _ = fmt.Fprint(flags.Output(), usage) }
	hammerRate := flags.Int("hammer-rate", 100, "")
	var watch churnOptions
	flags.DurationVar(&watch.duration, "watch-time", time.Minute, "")
	flags.Float64Var(&watch.rate, "watch-rate", 1, "")
	kubeconfig := flags.String("cluster", "", "")
	var peers []peer
	flags.Func("peer", "", func(s string) error {
		p, err := parsePeer(s)
		peers = append(peers, p)
		return err
	})
	page := flags.String("write", "", "")
	_ = flags.Parse(names) // ends the program after an error
	if *hammerRate < 0 || *hammerRate > 10_000 {
		exit(fmt.Errorf("--hammer-rate %d: want 0 to 10000", *hammerRate))
	}
	if watch.rate <= 0 || watch.rate > 100 || watch.duration <= 0 {
		exit(errors.New("--watch-time and --watch-rate: want a positive duration, and a rate of at most 100"))
	}
	if *page != "" && os.Getenv(profilesVariable) != "" {
		exit(fmt.Errorf("--write: %s makes all programs slower; unset it", profilesVariable))
	}
	out := &report{out: os.Stdout, revision: revision()}
	var err error
	switch {
	case *kubeconfig != "" && flags.NArg() > 0, *kubeconfig == "" && len(peers) > 0:
		err = errors.New("--peer needs --cluster, and --cluster takes no PART")
	case *kubeconfig != "":
		err = callsOfPeers(ctx, out, *kubeconfig, peers)
	default:
		err = run(ctx, out, flags.Args(), *hammerRate, watch)
	}
	err = errors.Join(err, out.printGoals())
	if *page != "" && len(out.sections) > 0 && ctx.Err() == nil {
		err = errors.Join(err, out.writePage(*page, partNames(), arguments(flags)))
	}
	exit(err)
}

// arguments returns the arguments without --write. Files and URLs are those of the user, so their kinds replace them.
func arguments(flags *flag.FlagSet) []string {
	var all []string
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "write":
		case "cluster":
			all = append(all, "--cluster FILE")
		case "peer":
			all = append(all, "--peer NAME=URL")
		default:
			all = append(all, "--"+f.Name+" "+f.Value.String())
		}
	})
	return append(all, flags.Args()...)
}

// commandOf returns the command if the arguments are for one that does not measure, or nil.
func commandOf(names []string) func(context.Context) error {
	switch {
	case len(names) == 2 && names[0] == upstreamCommand:
		return func(ctx context.Context) error { return serveUpstream(ctx, names[1]) }
	case len(names) == 3 && names[0] == reverseProxyCommand:
		return func(ctx context.Context) error { return serveReverseProxy(ctx, names[1], names[2]) }
	case len(names) > 0 && names[0] == gatewayCommand:
		return func(ctx context.Context) error {
			serveProfiled(ctx, names[1:])
			return nil
		}
	case len(names) == 3 && names[0] == mergeCommand:
		return func(context.Context) error { return mergeProfiles(names[1], names[2]) }
	case len(names) == 1 && names[0] == plainCommand:
		return servePlainWatches
	case len(names) == 1 && names[0] == "--check-scale":
		return func(ctx context.Context) error {
			out := &report{out: os.Stdout}
			return out.measure("scale", func() error { return checkScale(ctx, out) })
		}
	}
	return nil
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
