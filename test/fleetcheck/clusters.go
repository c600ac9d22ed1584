package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/server"
	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusters "github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// fleetDeadline is how long the gateway waits for a cluster that does not answer.
const fleetDeadline = 5 * time.Second

type member struct {
	name       string
	cluster    *cluster.Cluster
	direct     endpoint
	down       bool // it is killed or frozen now
	registered bool
}

type world struct {
	set       *cluster.Set
	members   []*member
	gateway   endpoint // its root
	registrar *registration.Registrar
	ids       sync.Map         // names of clusters by the id that the gateway gave them, also of removed ones
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

func (w *world) startGateway(ctx context.Context) error {
	pass := filepath.Join(w.dir, "pass")
	cfg := &server.Config{
		Listen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", Data: filepath.Join(w.dir, "data"), Functions: server.Inline,
		Kubeconfig: pass, Register: w.set.KubeconfigFile(), DrainTimeout: time.Second,
	}
	cfg.FleetDeadline = fleetDeadline
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	<-w.ended
	ready := make(chan struct{})
	out := server.Output{Progress: w.log, Log: w.log}
	go func() { w.ended <- server.Run(serving, cfg, out, func() { close(ready) }) }()
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

func root(owner *rest.Config) string {
	for i := len("https://"); i < len(owner.Host); i++ {
		if owner.Host[i] == '/' {
			return owner.Host[:i]
		}
	}
	return owner.Host
}

func (w *world) register(ctx context.Context, m *member) error {
	_, err := w.registrar.Register(ctx, registration.Request{
		Name: m.name, Kubeconfig: secrets.NewValue(m.cluster.Kubeconfig()), Replace: true,
	})
	return errors.Join(err, w.noteIDs(ctx))
}

// noteIDs records the numbers of the registered clusters in the fleet's versions.
func (w *world) noteIDs(ctx context.Context) error {
	for _, m := range w.members {
		o, err := w.registrar.Objects.Get(ctx, clusterv1alpha1.Prefix+m.name)
		if errors.Is(err, objects.ErrNotFound) {
			continue
		} else if err != nil {
			return fmt.Errorf("read the cluster %s of the gateway: %w", m.name, err)
		}
		w.ids.Store(o.Created, m.name)
	}
	return nil
}

// ownVersions returns each cluster's own version in a version of the fleet, and nil for other versions.
func (w *world) ownVersions(version string) map[string]string {
	if !cursor.Composite(version) {
		return nil
	}
	ids, err := cursor.ParseVersion(version)
	if err != nil {
		return nil
	}
	own := map[string]string{}
	for id, v := range ids {
		if name, ok := w.ids.Load(id); ok {
			own[name.(string)] = v
		}
	}
	return own
}

func (w *world) warnings() string {
	const maxLines = 20
	var lines []string
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "WARN") || strings.Contains(line, "ERROR") {
			lines = append(lines, head([]byte(line)))
		}
	}
	return strings.Join(lines[max(0, len(lines)-maxLines):], "")
}

func (w *world) close() error {
	w.stop()
	err := <-w.ended
	w.ended <- nil
	return errors.Join(err, w.set.Stop(), os.RemoveAll(w.dir))
}
