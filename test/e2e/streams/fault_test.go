package streams_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clusterpass/clusterpass/infra/local/server"
	policy "github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func countSockets(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		// The descriptor of the directory is closed now and has no target.
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// checkNoLeaks waits until run leaves no new goroutine and socket. It tries again if a member's health changed, which
// renews connections.
func checkNoLeaks(t *testing.T, run func(dialect e2e.Dialect)) {
	t.Helper()
	renewed := func() int { return strings.Count(e2e.SharedLog(), "a member's health has changed") }
	for again := 0; ; again++ {
		renewedBefore, before, socketsBefore := renewed(), goleak.IgnoreCurrent(), countSockets(t)
		for _, dialect := range e2e.Dialects {
			run(dialect)
		}
		var err error
		var n int
		// goleak itself waits for less than a second. An idle connection lasts for 90 seconds.
		if e2e.Within(t, func() bool {
			err, n = goleak.Find(before), countSockets(t)
			return err == nil && n <= socketsBefore
		}) {
			return
		}
		if renewed() == renewedBefore || again == 3 {
			t.Fatalf("%d sockets, %d before; %v", n, socketsBefore, err)
		}
		t.Logf("the gateway that the tests share has renewed connections; once more, after: %d sockets, %d before; %v", n,
			socketsBefore, err)
	}
}

// TestKilledClientsLeakNothing: the gateway must not keep goroutines or sockets for each broken stream.
func TestKilledClientsLeakNothing(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "talker-a")
	// Functions run inline and health probes are off, because both open and close sockets.
	h := e2e.StartGateway(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.ProbeInterval = 0 })
	t.Cleanup(func() { h.Stop(); <-h.Stopped })
	g := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "member1"}
	bin := e2e.Clusters.BuiltKubectl()
	port := e2e.EchoServer(t)
	g.Must(t, "-n", ns, "wait", "--for=condition=Ready", "pod/shell") // opens the connections that the gateway keeps
	checkNoLeaks(t, func(dialect e2e.Dialect) {
		g.Env = dialect.Env
		exec := g.Start(t, bin, "-n", ns, "exec", "-i", "shell", "--", "sh", "-c", "echo started; yes")
		exec.Line("started")
		logs := g.Start(t, bin, "-n", ns, "logs", "-f", "talker-a")
		logs.Line("a ")
		watch := g.Start(t, bin, "-n", ns, "get", "pods", "-w")
		watch.Line("shell")
		pf, addr := e2e.PortForward(t, g, bin, ns, port)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "half a messa")
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*e2e.Session{exec, logs, watch, pf} {
			_ = s.Cmd.Process.Signal(syscall.SIGKILL)
			s.ExitCode()
		}
		_ = conn.Close()
	})
}

// TestNetworkCut: clients must not hang or mistake a partial stream for a complete one, and the gateway must not leak
// it.
func TestNetworkCut(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "talker-a")
	h := e2e.StartGateway(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.ProbeInterval = 0 })
	t.Cleanup(func() { h.Stop(); <-h.Stopped })
	member := e2e.Clusters.Cluster("member1")
	u, err := url.Parse(member.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := newCuttableProxy(t, u.Host)
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: filepath.Join(h.Dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	reg := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects, Policy: policy.DialPolicy{AllowLoopback: true}}
	_, err = reg.Register(t.Context(), registration.Request{Name: "far", Identity: "impersonate", SkipCheck: true,
		Kubeconfig: secrets.NewValue(bytes.ReplaceAll(member.Kubeconfig(), []byte(u.Host), []byte(proxy.Addr().String())))})
	if err != nil {
		t.Fatal(err)
	}
	pass, err := os.ReadFile(h.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	g := e2e.Kubectl{Context: "member1",
		Kubeconfig: e2e.WriteFile(t, strings.ReplaceAll(string(pass), "/clusters/member1", "/clusters/far"))}
	bin := e2e.Clusters.BuiltKubectl()
	port := e2e.EchoServer(t)
	g.Must(t, "-n", ns, "wait", "--for=condition=Ready", "pod/shell")
	proxy.cut()
	checkNoLeaks(t, func(dialect e2e.Dialect) {
		g.Env = dialect.Env
		exec := g.Start(t, bin, "-n", ns, "exec", "-i", "shell", "--", "sh", "-c", "echo started; sleep 1000")
		exec.Line("started")
		logs := g.Start(t, bin, "-n", ns, "logs", "-f", "talker-a")
		logs.Line("a ")
		pf, addr := e2e.PortForward(t, g, bin, ns, port)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		checkEcho(t, conn, "before")
		proxy.cut()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a forwarded connection goes on: %v", dialect.Name, err)
		}
		_ = conn.Close()
		if code := exec.ExitCode(); code == 0 && dialect.Name == "websocket" { // by SPDY, kubectl reports success
			t.Errorf("%s: a command that was cut looks whole", dialect.Name)
		}
		if code := logs.ExitCode(); code == 0 {
			t.Errorf("%s: a log that was cut looks whole", dialect.Name)
		}
		_ = pf.Cmd.Process.Signal(syscall.SIGKILL) // it may still wait for connections
		pf.ExitCode()
	})
}

// cuttableProxy forwards connections to an address. cut resets all open connections; new ones work.
type cuttableProxy struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newCuttableProxy(t *testing.T, to string) *cuttableProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &cuttableProxy{Listener: ln}
	var wg sync.WaitGroup
	carry := func(dst, src net.Conn) { _, _ = io.Copy(dst, src); _ = dst.Close() }
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			m, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, c, m)
			w.mu.Unlock()
			wg.Go(func() { carry(c, m) })
			wg.Go(func() { carry(m, c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); w.cut(); wg.Wait() })
	return w
}

func (w *cuttableProxy) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	w.conns = nil
}

// TestMemberDies: kubectl must report the same errors through the gateway. By SPDY, kubectl may report success for a
// broken connection.
func TestMemberDies(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member2"}, "shell", "talker-a")
	bin := e2e.Clusters.BuiltKubectl()
	member := e2e.Clusters.Cluster("member2")
	for _, dialect := range e2e.Dialects {
		t.Run(dialect.Name, func(t *testing.T) {
			var execs, logs [2]*e2e.Session
			for i, k := range []e2e.Kubectl{e2e.Direct("member2"), e2e.Through(t, "member2")} {
				k.Env = dialect.Env
				execs[i] = k.Start(t, bin, "-n", ns, "exec", "-i", "shell", "--", "sh", "-c", "echo started; sleep 1000")
				execs[i].Line("started")
				logs[i] = k.Start(t, bin, "-n", ns, "logs", "-f", "talker-a")
				logs[i].Line("a ")
			}
			if err := member.Kill(t.Context(), cluster.APIServer); err != nil {
				t.Fatal(err)
			}
			for _, s := range [][2]*e2e.Session{execs, logs} {
				if d, g := s[0].ExitCode(), s[1].ExitCode(); d != g && dialect.Name == "websocket" { // by SPDY, the exit codes vary
					t.Errorf("%s: exit %d directly, %d through the gateway\n%s\n%s", s[1].Name, d, g, s[0].Stderr, s[1].Stderr)
				}
			}
			if code := logs[1].ExitCode(); code == 0 {
				t.Errorf("a log that was cut looks whole: %s", logs[1].Stderr)
			}
			if err := member.Restart(t.Context(), cluster.APIServer); err != nil {
				t.Fatal(err)
			}
			g := e2e.Through(t, "member2")
			g.Env = dialect.Env
			var r e2e.Result
			waittest.Until(t, "exec after the restart", func() bool {
				r = g.Run(t, "-n", ns, "exec", "shell", "--", "echo", "again")
				return r.Code == 0
			})
			if r.Stdout != "again\n" {
				t.Errorf("afterwards: %v", r)
			}
		})
	}
}
