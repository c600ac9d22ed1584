package e2e

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/server"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/cluster"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

const (
	recheck = 300 * time.Millisecond
	// probeTimeout is longer than a busy machine needs. A late probe would stop all calls to a healthy cluster.
	probeTimeout = 30 * time.Second
)

// GatewayService is the name of the gateway's Service in member1.
const GatewayService = "clusterpass.kube-system.svc"

// Gateway is a running gateway with all Clusters registered.
type Gateway struct {
	Dir        string             // of its data, its audit log and its owner's kubeconfig
	Kubeconfig string             // path of the owner's kubeconfig
	Log        *waittest.Buffer   // its log; Printed has the same text
	Stop       context.CancelFunc // begins its end
	Stopped    chan error         // receives the error of its end, once
}

var (
	shared      *Gateway
	sharedMutex sync.Mutex
)

// Shared returns the gateway that the tests of a package share. It runs functions as processes.
func Shared(t *testing.T) *Gateway {
	t.Helper()
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	if shared == nil {
		dir, err := os.MkdirTemp("", "clusterpass-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if shared == nil { // it did not start
				_ = os.RemoveAll(dir)
			}
		}()
		shared = StartGateway(t, dir, server.Process)
		deleteDefaultRegistry(t, dir)
	}
	return shared
}

// deleteDefaultRegistry makes the fleet empty, since each test creates the registry that it needs.
func deleteDefaultRegistry(t *testing.T, dir string) {
	t.Helper()
	store, err := objectsdir.Open(filepath.Join(dir, "data", "objects"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	const key = searchv1alpha1.Prefix + stores.DefaultRegistry
	o, err := store.Get(t.Context(), key)
	if err == nil {
		_, err = store.Delete(t.Context(), key, o.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// SharedLog returns the log of the shared gateway, empty if it does not run.
func SharedLog() string {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	if shared == nil {
		return ""
	}
	return shared.Log.String()
}

// StartGateway returns when a gateway with its data in dir is ready. The caller stops it and receives from Stopped.
func StartGateway(t *testing.T, dir string, mode server.Mode, configure ...func(*server.Config)) *Gateway {
	t.Helper()
	h := &Gateway{Dir: dir, Kubeconfig: filepath.Join(dir, "pass"), Log: &waittest.Buffer{}, Stopped: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	h.Stop = stop
	cfg := &server.Config{
		Listen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", Hosts: []string{GatewayService}, Data: filepath.Join(dir, "data"),
		Functions: mode, FunctionsDir: functionsDir(t),
		Kubeconfig: h.Kubeconfig, Register: Clusters.KubeconfigFile(), DrainTimeout: time.Second,
		Limits: bridge.Limits{Recheck: recheck, ProbeInterval: 2 * time.Second, ProbeTimeout: probeTimeout},
		Shared: assembly.Shared{Auditing: assembly.Auditing{Audit: filepath.Join(dir, "audit.log")}},
	}
	cfg.FleetDeadline = 25 * time.Second // less than a function's; a busy machine makes members slow
	front, err := frontProxy()
	if err == nil {
		err = cfg.Authentication.Decode(front)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := io.MultiWriter(h.Log, Printed)
	for _, fn := range configure {
		fn(cfg)
	}
	ready := make(chan struct{})
	go func() {
		h.Stopped <- server.Run(ctx, cfg, server.Output{Progress: out, Log: out}, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-h.Stopped:
		t.Fatalf("the gateway ended: %v\n%s", err, h.Log)
	case <-time.After(Patience):
		stop()
		<-h.Stopped
		t.Fatalf("the gateway does not start:\n%s", h.Log)
	}
	h.NoteSecrets()
	return h
}

// frontProxy lets member1's kube-apiserver name the callers that it forwards.
func frontProxy() (string, error) {
	ca, err := os.ReadFile(Clusters.Cluster("member1").FrontProxyCAFile())
	indented := strings.ReplaceAll(string(ca), "\n", "\n    ")
	return "frontProxy:\n  names: [front-proxy-client]\n  ca: |\n    " + indented, err
}

// Register adds a cluster to the stores of the shared gateway until the test ends.
func Register(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	Secrets.Document("the registration of "+name, kubeconfig)
	data := filepath.Join(Shared(t).Dir, "data")
	sec, err := secretsdir.Open(filepath.Join(data, "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := objectsdir.Open(filepath.Join(data, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	r := &registration.Registrar{Secrets: sec, Objects: obj, Policy: cluster.DialPolicy{AllowLoopback: true}}
	if _, err := r.Register(t.Context(), registration.Request{Name: name, Kubeconfig: secrets.NewValue(kubeconfig),
		DirectUsers: []string{"nobody"}, Replace: true}); err != nil {
		t.Fatal(err)
	}
	Shared(t).NoteSecrets()
	t.Cleanup(func() { _, _ = CLI(t, "", "cluster", "remove", name) })
}
