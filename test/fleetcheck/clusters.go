package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/server"
	clusters "github.com/clusterpass/clusterpass/shared/cluster"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// fleetDeadline is how long the gateway waits for a cluster that does not answer.
const fleetDeadline = 5 * time.Second

// member is one cluster of the fleet.
type member struct {
	name       string
	cluster    *cluster.Cluster
	direct     endpoint
	down       bool // it is killed or frozen now
	registered bool
}

// world is the clusters and a gateway that serves them.
type world struct {
	set       *cluster.Set
	members   []*member
	gateway   endpoint // its root
	registrar *registration.Registrar
	log       *waittest.Buffer // log of the gateway

	dir   string
	stop  context.CancelFunc
	ended chan error
}

// newWorld starts clusters and a gateway, and returns when both serve. Call close.
func newWorld(ctx context.Context, n int, progress io.Writer) (*world, error) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("member%d", i+1)
	}
	set, err := cluster.New(ctx, cluster.Options{Clusters: names, NoKubelet: true, Progress: progress})
	if err != nil {
		return nil, err
	}
	w := &world{set: set, log: &waittest.Buffer{}, ended: make(chan error, 1), stop: func() {}}
	w.ended <- nil
	for _, c := range set.Clusters() {
		direct, err := newEndpoint(c.RESTConfig(), c.Server())
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.members = append(w.members, &member{name: c.Name(), cluster: c, direct: direct, registered: true})
	}
	if w.dir, err = os.MkdirTemp("", "clusterpass-fleetcheck-"); err == nil {
		err = w.startGateway(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// startGateway runs the local program in this process, with all clusters registered.
func (w *world) startGateway(ctx context.Context) error {
	pass := filepath.Join(w.dir, "pass")
	cfg := &server.Config{
		Listen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", Data: filepath.Join(w.dir, "data"), Functions: server.Inline,
		Kubeconfig: pass, Register: w.set.KubeconfigFile(), DrainTimeout: time.Second, LogTo: w.log,
	}
	cfg.FleetDeadline = fleetDeadline
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	<-w.ended
	ready := make(chan struct{})
	go func() { w.ended <- server.Run(serving, cfg, w.log, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-w.ended:
		w.ended <- nil
		return fmt.Errorf("start the gateway: %w", err)
	case <-time.After(waittest.Patience):
		return fmt.Errorf("start the gateway: it does not serve after %v", waittest.Patience)
	}
	owner, err := clientcmd.BuildConfigFromFlags("", pass)
	if err != nil {
		return err
	}
	if w.gateway, err = newEndpoint(owner, root(owner)); err != nil {
		return err
	}
	sec, secErr := secretsdir.Open(filepath.Join(cfg.Data, "secrets"))
	obj, objErr := objectsdir.Open(filepath.Join(cfg.Data, "objects"))
	w.registrar = &registration.Registrar{Secrets: sec, Objects: obj, Policy: clusters.DialPolicy{AllowLoopback: true}}
	return errors.Join(secErr, objErr)
}

// root returns the URL of the gateway's root.
func root(owner *rest.Config) string {
	for i := len("https://"); i < len(owner.Host); i++ {
		if owner.Host[i] == '/' {
			return owner.Host[:i]
		}
	}
	return owner.Host
}

// register adds a cluster to the gateway, which runs.
func (w *world) register(ctx context.Context, m *member) error {
	_, err := w.registrar.Register(ctx, registration.Request{
		Name: m.name, Kubeconfig: secrets.NewValue(m.cluster.Kubeconfig()), Replace: true,
	})
	return err
}

// close ends the gateway and the clusters, and removes their data.
func (w *world) close() error {
	w.stop()
	err := <-w.ended
	w.ended <- nil
	return errors.Join(err, w.set.Stop(), os.RemoveAll(w.dir))
}
