// Command conformance runs Kubernetes' own conformance specs of sig-api-machinery and sig-cli directly, through the
// gateway, and through a fleet of one cluster. It fails if a spec passes directly but not on another target.
//
// Invariants:
//   - The specs come from the reports of e2e.test. No list of specs is kept here.
//   - Each target has a cluster of its own, so that the targets run in parallel.
//   - A run that is incomplete, or in which few specs pass directly, fails: it proves nothing.
//   - Everything has a deadline, and every process ends with this one.
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

	"k8s.io/klog/v2"
)

const usage = `Run Kubernetes' conformance specs of sig-api-machinery and sig-cli, directly, through the gateway, and
through a fleet of one cluster.

  --focus REGEXP   run only the specs whose names match, of those
  --out DIR        where logs and reports go (default dist/conformance)
  --help           print this
`

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // gateways in this process link k8s.io/apiserver
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.Usage = func() { _, _ = fmt.Fprint(os.Stdout, usage) }
	var o options
	flags.StringVar(&o.focus, "focus", "", "")
	flags.StringVar(&o.out, "out", "dist/conformance", "")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "unknown argument %q\n\n%s", flags.Arg(0), usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
