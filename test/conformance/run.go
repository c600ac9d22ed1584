package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/clusterpass/clusterpass/infra/local/server"
	gatewaycluster "github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/cluster/build"
)

const (
	suiteTimeout = 40 * time.Minute
	startTimeout = 3 * time.Minute
)

type options struct {
	focus string // a regular expression; "" for all specs
	out   string // directory of logs and reports
}

// A target is a context of the kubeconfig with its own test cluster.
type target struct {
	name    string
	cluster string // the name of the test cluster, which no other target uses
	context string // in the kubeconfig
	gateway bool   // whether requests go through the gateway
}

// The first target is the reference. The gateway's ResourceRegistry covers only the cluster of the fleet.
var targets = []target{
	{name: "direct", cluster: "direct", context: "direct"},
	{name: "gateway", cluster: "gateway", context: "gateway", gateway: true},
	{name: "fleet", cluster: fleetMember, context: kubeconfig.Fleet, gateway: true},
}

const fleetMember = "member"

// registry replaces the registry of a new store, which covers all clusters.
const registry = `apiVersion: search.karmada.io/v1alpha1
kind: ResourceRegistry
metadata:
  name: ` + stores.DefaultRegistry + `
spec:
  targetCluster:
    clusterNames: [` + fleetMember + `]
  resourceSelectors:
  - {apiVersion: "*", kind: "*"}
`

func run(ctx context.Context, out io.Writer, o options) (err error) {
	program, err := build.EnsureE2E(ctx, out) // has no timeout, since the first build lasts minutes
	if err != nil {
		return err
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return fmt.Errorf("remove the results of the last run: %w", err)
	}
	var names []string
	for _, t := range targets {
		names = append(names, t.cluster)
	}
	set, err := cluster.New(ctx, cluster.Options{
		Clusters: names, LogDir: filepath.Join(o.out, "clusters"), Progress: out,
		// One spec waits until a continue token has expired, which by default lasts two intervals of five minutes.
		APIServerArgs: []string{"--etcd-compaction-interval=1m"},
		// One spec waits for the next resync of the quota controller, which comes every five minutes by default.
		ControllerManagerArgs: []string{"--resource-quota-sync-period=30s"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Stop()) }()
	gw, err := startGateway(ctx, set, filepath.Join(o.out, "gateway.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gw.stop()) }()
	if err := gw.createRegistry(ctx, set.BuiltKubectl()); err != nil {
		return err
	}

	reports, err := runSuites(ctx, out, o, program, set, gw)
	if err != nil {
		return err
	}
	floor := minPasses
	if o.focus != "" {
		floor = 1
	}
	c := compare(reports)
	text := c.markdown()
	if err := os.WriteFile(filepath.Join(o.out, "result.md"), []byte(text), 0o600); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\n%s\nlogs and reports: %s\n", text, o.out)
	return c.verdict(floor)
}

// runSuites runs the specs on all targets in parallel. The first error ends the others.
func runSuites(
	ctx context.Context, out io.Writer, o options, program string, set *cluster.Set, gw *gateway,
) ([]*report, error) {
	p := &progress{out: out, start: time.Now()}
	reports := make([]*report, len(targets))
	suites, ctx := errgroup.WithContext(ctx)
	for i, t := range targets {
		s := &suite{
			target: t.name, context: t.context, program: program, kubectl: set.BuiltKubectl(),
			kubeconfig: set.Cluster(t.cluster).KubeconfigFile(), focus: o.focus, dir: filepath.Join(o.out, t.name), progress: p,
		}
		if t.gateway {
			s.kubeconfig, s.serverHasPath = gw.kubeconfig, true
		}
		suites.Go(func() (err error) {
			reports[i], err = s.run(ctx)
			return err
		})
	}
	return reports, suites.Wait()
}

type gateway struct {
	dir        string // of its data; stop removes it
	kubeconfig string
	cancel     context.CancelFunc
	ended      chan error
	log        *os.File
}

// startGateway registers the clusters and returns when the gateway serves. Call stop to end it.
func startGateway(ctx context.Context, set *cluster.Set, logFile string) (*gateway, error) {
	functions, err := filepath.Abs("dist/local/functions") // make builds them, and runs this program in the checkout
	if err != nil {
		return nil, err
	}
	var members []string
	for _, t := range targets {
		if t.gateway {
			members = append(members, set.Cluster(t.cluster).KubeconfigFile())
		}
	}
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "clusterpass-conformance-")
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	g := &gateway{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), ended: make(chan error, 1), log: log}
	cfg := &server.Config{
		Listen: "127.0.0.1:0", Data: filepath.Join(dir, "data"), Functions: server.Process, FunctionsDir: functions,
		Kubeconfig: g.kubeconfig, Register: strings.Join(members, string(filepath.ListSeparator)),
		DrainTimeout: 2 * time.Second,
	}
	var serving context.Context
	serving, g.cancel = context.WithCancel(ctx)
	ready := make(chan struct{})
	out := server.Output{Progress: log, Log: log}
	go func() { g.ended <- server.Run(serving, cfg, out, func() { close(ready) }) }()
	select {
	case <-ready:
		return g, nil
	case err := <-g.ended:
		g.ended <- nil
		return nil, errors.Join(fmt.Errorf("start the gateway: %w", err), g.stop())
	case <-time.After(startTimeout):
		err := fmt.Errorf("start the gateway: it does not serve after %s; see %s", startTimeout, logFile)
		return nil, errors.Join(err, g.stop())
	}
}

// createRegistry returns when every process of the gateway uses the ResourceRegistry of the fleet.
func (g *gateway) createRegistry(ctx context.Context, kubectl string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubectl, "--kubeconfig="+g.kubeconfig, "--context="+kubeconfig.Own, "apply", "-f", "-")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + g.dir}
	cmd.Stdin = strings.NewReader(registry)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("create the ResourceRegistry of the fleet: %w: %s", err, text)
	}
	select {
	case <-time.After(2 * gatewaycluster.Local.Object): // no response shows which registries a process uses
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gateway) stop() error {
	g.cancel()
	return errors.Join(<-g.ended, g.log.Close(), os.RemoveAll(g.dir))
}
