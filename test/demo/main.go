// Command demo shows Clusterpass on this machine: two real clusters, one gateway, one kubeconfig, real kubectl. make
// builds the programs that it runs beside it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/clusterpass/clusterpass/test/demo/picture"
)

const usage = `Show Clusterpass on this machine: start a Kubernetes cluster and the gateway, add a second cluster, and
use both with kubectl. The time of each kubectl call stands beside that of the same call without the gateway.

  --exit           end after the walk, instead of staying up until ctrl-C
  --picture FILE   draw a part of the output into FILE (SVG), and end
  --help           print this
`

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // gateways in this process link k8s.io/apiserver
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stay, file, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprint(os.Stdout, usage)
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "%v\n\n%s", err, usage)
		os.Exit(2) //nolint:gocritic // stop has nothing left to do
	}
	if err := start(ctx, stay, file); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// parse returns whether the gateway stays up, and the file of the picture, or "". It returns pflag.ErrHelp if args ask
// for help.
func parse(args []string) (stay bool, file string, err error) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	exit := set.Bool("exit", false, "")
	set.StringVar(&file, "picture", "", "")
	if err = set.Parse(args); err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", set.Arg(0))
	}
	return !*exit && !set.Changed("picture"), file, err
}

// start runs the demo, and draws it into a file unless that is empty.
func start(ctx context.Context, stay bool, file string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	o := options{
		out: os.Stdout, clusterpass: filepath.Join(filepath.Dir(exe), "clusterpass"), tools: filepath.Dir(exe), stay: stay,
	}
	if file == "" {
		return run(ctx, o)
	}
	var output bytes.Buffer
	o.out = io.MultiWriter(os.Stdout, &output)
	if err := run(ctx, o); err != nil {
		return err
	}
	svg, err := picture.Draw(output.String())
	if err != nil {
		return err
	}
	return os.WriteFile(file, svg, 0o644)
}
