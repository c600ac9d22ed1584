package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

// patience bounds each command and each wait, also on a slow machine.
const patience = 2 * time.Minute

type options struct {
	out         io.Writer
	clusterpass string // the command line
	tools       string // directory of the programs of package cluster; "" to build them
	stay        bool   // whether the gateway stays up at the end until the context ends
}

type demo struct {
	options
	dir      string             // working directory of all commands
	clusters []*cluster.Cluster // those that the gateway knows
	kubectl  string
	began    time.Time
}

// run returns after the walk or, if it is to stay, at the end of ctx. Nothing of it runs afterwards.
func run(ctx context.Context, o options) (err error) {
	o.out = &lockedWriter{to: o.out}
	d := &demo{options: o, began: time.Now()}
	if d.dir, err = os.MkdirTemp("", "clusterpass-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()

	d.explain("A Kubernetes cluster: etcd, kube-apiserver, and a node whose pods are processes of this machine.")
	first, err := d.startCluster(ctx, "member1")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Stop()) }()
	d.kubectl = first.Kubectl()

	stop, ended, err := d.prepare(ctx, first.Cluster("member1"))
	if err != nil {
		return err
	}
	defer func() { stop(); err = errors.Join(err, <-ended) }()

	d.explain("All clusters at once, through the gateway. There is one so far.")
	if err := d.show(ctx, listPods); err != nil {
		return err
	}
	firstOutput := time.Since(d.began)

	d.explain("A second cluster.")
	second, err := d.startCluster(ctx, "member2")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Stop()) }()
	if err := d.addCluster(ctx, second.Cluster("member2")); err != nil {
		return err
	}
	if err := d.walk(ctx); err != nil {
		return err
	}
	d.explain("The first output through the gateway came after %.1f s, and the last one after %.1f s.",
		firstOutput.Seconds(), time.Since(d.began).Seconds())
	if !o.stay {
		d.printNext()
		return nil
	}
	d.explain("The gateway stays up until ctrl-C. To use it in another terminal: export KUBECONFIG=%s "+
		"CLUSTERPASS_STORE=dir:%s", d.kubeconfig(), d.store())
	d.printNext()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		ended <- nil
		return err
	}
}

func (d *demo) startCluster(ctx context.Context, name string) (*cluster.Set, error) {
	set, err := cluster.New(ctx, cluster.Options{
		Clusters: []string{name}, Minimal: true, Tools: d.tools, Progress: d.out,
	})
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(set.KubeconfigFile(), filepath.Join(d.dir, name+".kubeconfig")); err != nil {
		return nil, errors.Join(err, set.Stop())
	}
	return set, nil
}

// prepare starts the gateway with its first cluster, and pods in that cluster. The gateway ends after stop, and sends
// its error.
func (d *demo) prepare(ctx context.Context, c *cluster.Cluster) (stop func(), ended chan error, err error) {
	d.explain("The gateway, with this cluster.")
	// The gateway sets the logger of client-go at its start. This process must not use client-go meanwhile.
	if err := createPods(ctx, c); err != nil {
		return nil, nil, err
	}
	gatewayCtx, stop := context.WithCancel(ctx)
	ended = make(chan error, 1)
	serves := make(chan struct{})
	var progress bytes.Buffer
	go func() { ended <- d.gateway(gatewayCtx, &progress, c.KubeconfigFile(), func() { close(serves) }) }()
	select {
	case <-serves:
		err = waitForPods(ctx, c)
	case err = <-ended:
		ended <- nil
		err = errors.Join(err, errors.New(progress.String()))
	}
	if err != nil {
		stop()
		return nil, nil, errors.Join(err, <-ended)
	}
	d.clusters = append(d.clusters, c)
	return stop, ended, nil
}

func (d *demo) kubeconfig() string { return filepath.Join(d.dir, "clusterpass.kubeconfig") }

func (d *demo) store() string { return filepath.Join(d.dir, "data") }

func (d *demo) gateway(ctx context.Context, progress io.Writer, register string, serves func()) error {
	cfg := &server.Config{
		Listen: "127.0.0.1:0", Data: d.store(), Functions: server.Inline, Kubeconfig: d.kubeconfig(), Register: register,
		DrainTimeout: 2 * time.Second, Shared: assembly.Shared{LogLevel: slog.LevelError},
		Limits: bridge.Limits{ProbeInterval: 5 * time.Second},
	}
	return server.Run(ctx, cfg, server.Output{Progress: progress}, serves)
}

// addCluster starts pods in a cluster, registers it and writes its context. It returns when the fleet has the cluster.
func (d *demo) addCluster(ctx context.Context, c *cluster.Cluster) error {
	d.explain("It joins while the gateway runs.")
	if err := createPods(ctx, c); err != nil {
		return err
	}
	add := []string{"cluster", "add", c.Name(), "--kubeconfig", c.Name() + ".kubeconfig"}
	if err := d.clusterpassCommand(ctx, "", add...); err != nil {
		return err
	}
	d.explain("Its context joins the kubeconfig.")
	own := filepath.Base(d.kubeconfig())
	if err := d.clusterpassCommand(ctx, "", "login", "--pass", own, "--kubeconfig", own); err != nil {
		return err
	}
	if err := waitForPods(ctx, c); err != nil {
		return err
	}
	d.clusters = append(d.clusters, c)
	return d.waitForFleet(ctx, c.Name())
}

// lockedWriter lets a command write its errors while the demo prints its lines.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// explain prints what follows, for a reader.
func (d *demo) explain(format string, args ...any) { d.printf("\n# "+format+"\n", args...) }

func (d *demo) printf(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format, args...) }

func (d *demo) printNext() {
	d.explain("Next, with clusters of your own:")
	d.printf(`  KUBECONFIG=~/.kube/config make up                # the gateway, with the contexts of this kubeconfig
  export KUBECONFIG=$PWD/clusterpass.kubeconfig    # in another terminal, in the same directory
  kubectl --context fleet get pods -A
`)
}
