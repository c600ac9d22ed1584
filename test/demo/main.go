// Command demo shows Clusterpass on this machine: two real clusters, one gateway, one kubeconfig, real kubectl. make
// builds the programs that it runs beside it.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/clusterpass/clusterpass/test/demo/picture"
)

const usage = `Show Clusterpass on this machine: start a Kubernetes cluster and the gateway, add a second cluster, and
use both with kubectl. The time of each kubectl call stands beside that of the same call without the gateway.

  --exit           end after the walk, instead of staying up until ctrl-C
  --picture=FILE   draw a part of the output into FILE (SVG), and end
  --help           print this
`

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // gateways in this process link k8s.io/apiserver
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stay, file := true, ""
	for _, arg := range os.Args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--exit":
			stay = false
		case "--picture":
			stay, file = false, value
		case "-h", "--help":
			_, _ = fmt.Fprint(os.Stdout, usage)
			return
		default:
			fmt.Fprintf(os.Stderr, "unknown argument %q\n\n%s", arg, usage)
			os.Exit(2)
		}
	}
	if err := start(ctx, stay, file); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
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
