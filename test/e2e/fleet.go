package e2e

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/cluster"
)

// Members are the clusters of the fleet in these tests.
var Members = []string{"member1", "member2"}

// FleetPrefix is the path of the fleet in Karmada's form.
const FleetPrefix = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"

// BridgeFleetPrefix is the path of the fleet at the bridge, whose one process sees its own earlier writes.
const BridgeFleetPrefix = "/bridge/fleet"

// SourceAnnotation names the cluster of an object that the fleet returns.
const SourceAnnotation = "resource.karmada.io/cached-from-cluster"

// SeedRegistry is the ResourceRegistry of Karmada's page on global resources.
const SeedRegistry = `apiVersion: search.karmada.io/v1alpha1
kind: ResourceRegistry
metadata:
  name: proxy-sample
spec:
  targetCluster:
    clusterNames:
  resourceSelectors:
    - apiVersion: v1
      kind: Pod
    - apiVersion: v1
      kind: Node
`

// AtFleet returns k with the fleet as its server.
func AtFleet(t *testing.T, k Kubectl) Kubectl {
	t.Helper()
	_, root := Caller(t)
	k.Server = root + FleetPrefix
	return k
}

// CreateRegistry makes a ResourceRegistry until the test ends. It returns when every process uses it.
func CreateRegistry(t *testing.T, name, target, selectors string) {
	t.Helper()
	doc := fmt.Sprintf("{apiVersion: search.karmada.io/v1alpha1, kind: ResourceRegistry, metadata: {name: %s}, spec: "+
		"{targetCluster: %s, resourceSelectors: [%s]}}", name, target, selectors)
	if out, err := CLI(t, doc, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = CLI(t, doc, "delete", "-f", "-") })
	WaitForRegistries()
}

// WaitForRegistries waits until every process uses the stored registries. No response shows which registries a process
// uses, so only the age of its cache is certain.
func WaitForRegistries() { <-time.After(2 * cluster.Local.Object) }

// FleetClient returns client-go for the fleet, as the gateway's owner. If cut is not nil, it records the connections.
func FleetClient(t *testing.T, cut *Connections) kubernetes.Interface {
	t.Helper()
	return FleetClientOf(t, Shared(t).Kubeconfig, cut)
}

// FleetClientOf is FleetClient with another kubeconfig.
func FleetClientOf(t *testing.T, pass string, cut *Connections) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(FleetConfig(t, pass, cut))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// FleetConfig is the configuration of FleetClientOf.
func FleetConfig(t *testing.T, pass string, cut *Connections) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", pass)
	if err != nil {
		t.Fatal(err)
	}
	_, root := Caller(t)
	cfg.Host, cfg.QPS = root+"/fleet", -1
	if cut != nil {
		cfg.Dial = cut.dial
	}
	return cfg
}

// Connections records connections, so that a test can cut them or refuse new ones. It is safe for concurrent use.
type Connections struct {
	mu     sync.Mutex
	all    []net.Conn
	closed bool
}

// Cut closes all recorded connections.
func (c *Connections) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close()
	}
	c.all = nil
}

// Close cuts all connections, and each new one until Open.
func (c *Connections) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.Cut()
}

func (c *Connections) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		c.Add(conn)
	}
	return conn, err
}

// Add records a connection, or closes it between Close and Open.
func (c *Connections) Add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return
	}
	c.all = append(c.all, conn)
}

// Open accepts new connections again.
func (c *Connections) Open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = false
}
