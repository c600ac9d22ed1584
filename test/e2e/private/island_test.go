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

// island is a network namespace that has loopback and nothing else: no route leads in, and none out.
type island struct {
	t         *testing.T
	home, own *os.File // network namespaces; own is nil where this machine makes none
}

func newIsland(t *testing.T) *island {
	t.Helper()
	n := &island{t: t}
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
	n.home = open()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		said := fmt.Sprintf("NOT TRIED: that the member has no inbound route. This machine makes no network namespace "+
			"(%v); run the test as root. The rest is tried without one.", err)
		fmt.Fprintln(os.Stderr, said)
		t.Log(said)
		return n
	}
	n.own = open()
	defer n.back()
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	return n
}

// loopbackUp brings it up in the calling thread's namespace, which gives it its addresses.
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

// back returns the calling thread to where the other threads are.
func (n *island) back() {
	if err := unix.Setns(int(n.home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(err) // whatever ran on this thread next would run on the island
	}
}

// inside runs f there: sockets that it opens itself, and processes that it starts, are on the island for good.
func (n *island) inside(f func()) {
	n.t.Helper()
	if n.own == nil {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(n.own.Fd()), unix.CLONE_NEWNET); err != nil {
		n.t.Fatal(err)
	}
	defer n.back()
	f()
}

// ferry is a proxy that stands on the island and connects at home, to the gateway and nothing else, for those who show its password.
type ferry struct {
	ln             net.Listener
	name, to       string // host:port of the gateway as agents call it, and where it is
	authorization  string
	mu             sync.Mutex
	aboard         map[net.Conn]bool
	carried, other int // CONNECTs: to the gateway, to elsewhere
}

func (f *ferry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	may := r.Header.Get("Proxy-Authorization") == f.authorization
	switch {
	case !may:
	case r.Method == http.MethodConnect && r.Host == f.name:
		f.carried++
	default:
		f.other++
	}
	f.mu.Unlock()
	if !may {
		w.Header().Set("Proxy-Authenticate", `Basic realm="ferry"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect || r.Host != f.name {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	back, err := net.Dial("tcp", f.to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = back.Close()
		return
	}
	f.mu.Lock()
	f.aboard[conn], f.aboard[back] = true, true
	f.mu.Unlock()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	var both sync.WaitGroup
	carry := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_, _ = dst.Close(), src.Close()
	}
	both.Go(func() { carry(back, conn) })
	both.Go(func() { carry(conn, back) })
	both.Wait()
	f.mu.Lock()
	delete(f.aboard, conn)
	delete(f.aboard, back)
	f.mu.Unlock()
}

// sink closes all connections.
func (f *ferry) sink() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.aboard {
		_ = c.Close()
	}
}

// TestNoWayIn holds: a real cluster into which no route leads is reached through its agent, whose only way out is a proxy that wants a
// password.
func TestNoWayIn(t *testing.T) {
	n := newIsland(t)
	var set *testcluster.Set
	n.inside(func() {
		set = testcluster.Start(t, testcluster.Options{Clusters: []string{"island"}, NoKubelet: true, Progress: e2e.Printed})
	})
	e2e.Secrets.Document("the administrator of the island", set.Cluster("island").Kubeconfig())
	there := e2e.Kubectl{Kubeconfig: set.KubeconfigFile(), Context: "island"}
	n.inside(func() { there.Must(t, "get", "--raw", "/version") })
	if n.own != nil {
		n.inside(func() {
			all, err := net.Interfaces()
			// some kernels put tunnels into each, which are down
			up := slices.DeleteFunc(slices.Clone(all), func(i net.Interface) bool { return i.Flags&net.FlagUp == 0 })
			if err != nil || len(up) != 1 || up[0].Flags&net.FlagLoopback == 0 {
				t.Errorf("the island has the interfaces %v, %v", all, err)
			}
		})
		if r := there.Run(t, "get", "--raw", "/version", "--request-timeout", "20s"); r.Code == 0 {
			t.Error("the cluster is reached without its agent")
		}
	}

	client, root := e2e.Caller(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(root, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	password := rand.Text()
	e2e.Secrets.Secret("the ferry", password)
	e2e.Secrets.Secret("the ferry's passengers", base64.StdEncoding.EncodeToString([]byte("agent:"+password)))
	f := &ferry{
		name: net.JoinHostPort(e2e.GatewayService, port), to: strings.TrimPrefix(root, "https://"),
		authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte("agent:"+password)), aboard: map[net.Conn]bool{},
	}
	n.inside(func() { f.ln, err = net.Listen("tcp", "127.0.0.1:0") })
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(f.ln) }()
	t.Cleanup(func() { _ = srv.Close(); f.sink(); <-ended })

	p := &privateCluster{t: t, name: "island", member: set.Cluster("island"), gateway: e2e.Shared(t).Kubeconfig}
	n.inside(func() {
		p.join("--tunnel", "https://"+logged(t, e2e.Shared(t).Log, `"the tunnel port is open","address":"([^"]+)"`))
	})
	agent := func(user string) (a *agentProcess) {
		n.inside(func() {
			a = p.start("CLUSTERPASS_GATEWAY=https://"+f.name, "HTTPS_PROXY=http://"+user+f.ln.Addr().String())
		})
		return a
	}
	stranger := agent("")
	logged(t, stranger.log, `(it wants a user with a password)`)
	stranger.kill()
	g := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root + "/clusters/island"}
	if r := g.Run(t, "get", "namespaces"); r.Code == 0 || !strings.Contains(r.Stderr, "none of its agents is connected") {
		t.Errorf("without an agent: %v", r)
	}
	first := agent("agent:" + password + "@")
	logged(t, first.log, `(connected to a replica of the bridge)`)

	waittest.Until(t, "island is reachable", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
	watch := g.Start(t, e2e.Clusters.BuiltKubectl(), "get", "configmaps", "-w", "-o", "name")
	g.Must(t, "create", "configmap", "by-ferry")
	watch.Line("configmap/by-ferry")
	for range 2 {
		f.sink()
		waittest.Until(t, "island is reachable after a restart", func() bool {
			return g.Run(t, "get", "configmap", "by-ferry").Code == 0
		})
	}
	own := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root}
	waittest.Until(t, "island is ready", func() bool {
		return own.Run(t, "get", "cluster", "island", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}`).Stdout == "True"
	})

	// A call that is on its way when the agent dies fails and says so; the next one goes through another agent.
	ctx := context.WithoutCancel(t.Context())
	if err := set.Cluster("island").Pause(ctx, testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	lost := make(chan *http.Response, 2)
	// through a function, and through the bridge
	for _, path := range []string{"/clusters/island/api/v1/secrets", "/bridge/clusters/island/api/v1/secrets"} {
		go func() {
			resp, err := client.Get(root + path)
			if err != nil {
				t.Error(err)
			}
			lost <- resp
		}()
	}
	e2e.Idle(time.Second) // most likely both calls have reached the API server; the answer is the same if not
	first.kill()
	for range 2 {
		resp := <-lost
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
	if err := set.Cluster("island").Resume(ctx, testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	agent("agent:" + password + "@")
	waittest.Until(t, "island is reachable through another agent", func() bool {
		return g.Run(t, "get", "namespaces").Code == 0
	})

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.carried < 3 || f.other > 0 {
		t.Errorf("the ferry went to the gateway %d times, and was asked to go elsewhere %d times", f.carried, f.other)
	}
}
