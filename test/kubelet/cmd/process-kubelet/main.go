// Command process-kubelet is a node of a Kubernetes cluster that runs containers as plain processes, without isolation.
// It is for tests and demos only. See docs/development/process-kubelet.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/test/kubelet"
	"github.com/clusterpass/clusterpass/test/kubelet/shim"
)

func main() {
	if shim.Invoked() {
		os.Exit(shim.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "process-kubelet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var c kubelet.Config
	flags := flag.NewFlagSet("process-kubelet", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig `file` of the node")
	flags.StringVar(&c.NodeName, "node-name", "", "`name` of the node to register")
	flags.StringVar(&c.RootDir, "root-dir", "",
		"`directory` for containers, volumes and logs; data of pods in it is deleted")
	flags.StringVar(&c.Address, "address", "127.0.0.1", "`IP` address to listen on")
	flags.IntVar(&c.Port, "port", 0, "port to listen on; 0 selects a free one")
	flags.StringVar(&c.TLSCertFile, "tls-cert-file", "", "serving certificate `file`, PEM")
	flags.StringVar(&c.TLSPrivateKeyFile, "tls-private-key-file", "", "serving key `file`, PEM")
	flags.StringVar(&c.ClientCAFile, "client-ca-file", "", "`file` with the authorities of client certificates, PEM")
	flags.IntVar(&c.MaxPods, "max-pods", 110, "the node's capacity of pods")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.QPS = -1 // one node of a test cluster needs no rate limit
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	k, err := kubelet.New(c)
	if err != nil {
		return err
	}
	return k.Run(ctx)
}
