package private_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/waittest"
	testcluster "github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// isolatedNetwork is a network namespace that has only loopback. No route leads in or out.
type isolatedNetwork struct {
	t                  *testing.T
	original, isolated *os.File // network namespaces; isolated is nil where the machine allows none
}

func newIsolatedNetwork(t *testing.T) *isolatedNetwork {
	t.Helper()
	n := &isolatedNetwork{t: t}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open := func() *os.File {
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	n.original = open()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		message := fmt.Sprintf("NOT TRIED: that the member has no inbound route. This machine makes no network namespace "+
			"(%v); run the test as root. The rest is tried without one.", err)
		fmt.Fprintln(os.Stderr, message)
		t.Log(message)
		return n
	}
	n.isolated = open()
	defer n.leave()
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	return n
}

// loopbackUp enables loopback in the calling thread's namespace, which also assigns its addresses.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, lo); err != nil {
		return err
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func (n *isolatedNetwork) leave() {
	if err := unix.Setns(int(n.original.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(err) // other goroutines on this thread would be isolated
	}
}

// run runs f in the isolated namespace. Sockets that f itself opens and processes that it starts stay there.
func (n *isolatedNetwork) run(f func()) {
	n.t.Helper()
	if n.isolated == nil {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(n.isolated.Fd()), unix.CLONE_NEWNET); err != nil {
		n.t.Fatal(err)
	}
	defer n.leave()
	f()
}

// egressProxy listens in the isolated namespace and connects in the original one, only to the gateway and with a
// password.
type egressProxy struct {
	ln                    net.Listener
	gateway, gatewayAddr  string // host:port of the gateway by its name, and by its address
	authorization         string
	mu                    sync.Mutex
	conns                 map[net.Conn]bool
	gatewayCalls, refused int // CONNECT requests to the gateway, and all others
}

func (f *egressProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	isAuthorized := r.Header.Get("Proxy-Authorization") == f.authorization
	switch {
	case !isAuthorized:
	case r.Method == http.MethodConnect && r.Host == f.gateway:
		f.gatewayCalls++
	default:
		f.refused++
	}
	f.mu.Unlock()
	if !isAuthorized {
		w.Header().Set("Proxy-Authenticate", `Basic realm="ferry"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect || r.Host != f.gateway {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	upstream, err := net.Dial("tcp", f.gatewayAddr)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = upstream.Close()
		return
	}
	f.mu.Lock()
	f.conns[conn], f.conns[upstream] = true, true
	f.mu.Unlock()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	var both sync.WaitGroup
	carry := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_, _ = dst.Close(), src.Close()
	}
	both.Go(func() { carry(upstream, conn) })
	both.Go(func() { carry(conn, upstream) })
	both.Wait()
	f.mu.Lock()
	delete(f.conns, conn)
	delete(f.conns, upstream)
	f.mu.Unlock()
}

func (f *egressProxy) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
}

// TestClusterWithoutInboundRoute: a cluster must work whose agent reaches the gateway only through a proxy with a
// password.
func TestClusterWithoutInboundRoute(t *testing.T) {
	n := newIsolatedNetwork(t)
	var set *testcluster.Set
	n.run(func() {
		set = testcluster.Start(t, testcluster.Options{Clusters: []string{"island"}, NoKubelet: true, Progress: e2e.Printed})
	})
	e2e.Secrets.Document("the administrator of the island", set.Cluster("island").Kubeconfig())
	direct := e2e.Kubectl{Kubeconfig: set.KubeconfigFile(), Context: "island"}
	n.run(func() { direct.Must(t, "get", "--raw", "/version") })
	checkIsolation(t, n, direct)
	client, root := e2e.Caller(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(root, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	password := rand.Text()
	e2e.Secrets.Secret("the ferry", password)
	e2e.Secrets.Secret("the ferry's passengers", base64.StdEncoding.EncodeToString([]byte("agent:"+password)))
	f := &egressProxy{
		gateway: net.JoinHostPort(e2e.GatewayService, port), gatewayAddr: strings.TrimPrefix(root, "https://"),
		authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte("agent:"+password)), conns: map[net.Conn]bool{},
	}
	n.run(func() { f.ln, err = net.Listen("tcp", "127.0.0.1:0") })
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(f.ln) }()
	t.Cleanup(func() { _ = srv.Close(); f.closeAll(); <-ended })

	p := &privateCluster{t: t, PrivateCluster: e2e.PrivateCluster{
		Name: "island", Member: set.Cluster("island"), Gateway: e2e.Shared(t).Kubeconfig,
	}}
	n.run(func() {
		p.Join(t, "--tunnel", e2e.SharedTunnel(t))
	})
	startAgent := func(user string) (a *agentProcess) {
		n.run(func() {
			a = p.startAgent("CLUSTERPASS_GATEWAY=https://"+f.gateway, "HTTPS_PROXY=http://"+user+f.ln.Addr().String())
		})
		return a
	}
	stranger := startAgent("")
	e2e.WaitForLog(t, stranger.log, `(it requires a user with a password)`)
	stranger.kill()
	g := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root + "/clusters/island"}
	if r := g.Run(t, "get", "namespaces"); r.Code == 0 || !strings.Contains(r.Stderr, "none of its agents is connected") {
		t.Errorf("without an agent: %v", r)
	}
	first := startAgent("agent:" + password + "@")
	e2e.WaitForLog(t, first.log, `(connected to a replica of the bridge)`)

	waittest.Until(t, "island is reachable", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
	watch := g.Start(t, e2e.Clusters.BuiltKubectl(), "get", "configmaps", "-w", "-o", "name")
	g.Must(t, "create", "configmap", "by-ferry")
	watch.Line("configmap/by-ferry")
	for range 2 {
		f.closeAll()
		waittest.Until(t, "island is reachable after a restart", func() bool {
			return g.Run(t, "get", "configmap", "by-ferry").Code == 0
		})
	}
	gatewayAPI := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root}
	waittest.Until(t, "island is ready", func() bool {
		return gatewayAPI.Run(t, "get", "cluster", "island", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}`).Stdout == "True"
	})

	checkLostRequests(t, client, root, set.Cluster("island"), first)
	startAgent("agent:" + password + "@")
	waittest.Until(t, "island is reachable through another agent", func() bool {
		return g.Run(t, "get", "namespaces").Code == 0
	})

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gatewayCalls < 3 || f.refused > 0 {
		t.Errorf("the ferry went to the gateway %d times, and was asked to go elsewhere %d times", f.gatewayCalls, f.refused)
	}
}

// checkIsolation checks that the cluster cannot be reached from outside.
func checkIsolation(t *testing.T, n *isolatedNetwork, direct e2e.Kubectl) {
	t.Helper()
	if n.isolated == nil {
		return // newIsolatedNetwork printed the reason
	}
	n.run(func() {
		all, err := net.Interfaces()
		// Some kernels add tunnels that are down to each namespace.
		up := slices.DeleteFunc(slices.Clone(all), func(i net.Interface) bool { return i.Flags&net.FlagUp == 0 })
		if err != nil || len(up) != 1 || up[0].Flags&net.FlagLoopback == 0 {
			t.Errorf("the island has the interfaces %v, %v", all, err)
		}
	})
	if r := direct.Run(t, "get", "--raw", "/version", "--request-timeout", "20s"); r.Code == 0 {
		t.Error("the cluster is reached without its agent")
	}

}

// checkLostRequests kills the only agent while an API server that is paused has requests.
func checkLostRequests(t *testing.T, client *http.Client, root string, member *testcluster.Cluster,
	agent *agentProcess) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := member.Pause(ctx, testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	responses := make(chan *http.Response, 2)
	// The first path goes through a function, and the second through the bridge.
	for _, path := range []string{"/clusters/island/api/v1/secrets", "/bridge/clusters/island/api/v1/secrets"} {
		go func() {
			resp, err := client.Get(root + path)
			if err != nil {
				t.Error(err)
			}
			responses <- resp
		}()
	}
	e2e.Idle(time.Second) // lets both requests reach the API server; the response is the same if they do not
	agent.kill()
	for range 2 {
		resp := <-responses
		if resp == nil {
			continue
		}
		var st metav1.Status
		err := json.NewDecoder(resp.Body).Decode(&st)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 502 && resp.StatusCode != 504 || st.Details == nil ||
			st.Details.Name != "island" {
			t.Errorf("a call that lost its agent: %s %+v, %v", resp.Status, st, err)
		}
	}
	if err := member.Resume(ctx, testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
}
