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

// sockets counts those that this process has open.
func sockets(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		// else it was that of the directory
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// leavesNothing runs something, and again for each dialect, and waits until this process has neither a goroutine nor a socket that it had
// not before. The gateway that the tests share runs in this process, too: when it finds that a member's health has changed, as it does of
// one that a busy machine keeps waiting, it renews its connections, and that says nothing of what was run.
func leavesNothing(t *testing.T, run func(dia e2e.Dialect)) {
	t.Helper()
	renewed := func() int { return strings.Count(e2e.SharedLog(), "a member's health has changed") }
	for again := 0; ; again++ {
		renewedBefore, before, socketsBefore := renewed(), goleak.IgnoreCurrent(), sockets(t)
		for _, dia := range e2e.Dialects {
			run(dia)
		}
		var err error
		var n int
		// goleak itself waits for less than a second. An idle connection lasts for 90 seconds.
		if e2e.Within(t, func() bool { err, n = goleak.Find(before), sockets(t); return err == nil && n <= socketsBefore }) {
			return
		}
		if renewed() == renewedBefore || again == 3 {
			t.Fatalf("%d sockets, %d before; %v", n, socketsBefore, err)
		}
		t.Logf("the gateway that the tests share has renewed connections; once more, after: %d sockets, %d before; %v", n,
			socketsBefore, err)
	}
}

// TestNothingIsLeft holds: however streams end, the gateway keeps neither a goroutine nor a socket of them.
func TestNothingIsLeft(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "talker-a")
	// Processes of functions come and go, and probes of health keep connections.
	h := e2e.StartGateway(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.ProbeInterval = 0 })
	t.Cleanup(func() { h.Stop(); <-h.Stopped })
	g := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "member1"}
	bin := e2e.Clusters.BuiltKubectl()
	port := e2e.EchoServer(t)
	g.Must(t, "-n", ns, "wait", "--for=condition=Ready", "pod/shell") // opens the connections that stay
	leavesNothing(t, func(dia e2e.Dialect) {
		g.Env = dia.Env
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
		for _, s := range []*e2e.Session{exec, logs, watch, pf} { // in the middle of whatever they do
			_ = s.Cmd.Process.Signal(syscall.SIGKILL)
			s.ExitCode()
		}
		_ = conn.Close()
	})
}

// TestNetworkCut holds: when the connections to a member are cut in mid-stream, each client is told, and nothing of them is left.
func TestNetworkCut(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "talker-a")
	h := e2e.StartGateway(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.ProbeInterval = 0 })
	t.Cleanup(func() { h.Stop(); <-h.Stopped })
	member := e2e.Clusters.Cluster("member1")
	u, err := url.Parse(member.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	wire := newWire(t, u.Host)
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: filepath.Join(h.Dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	reg := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects, Policy: policy.DialPolicy{AllowLoopback: true}}
	_, err = reg.Register(t.Context(), registration.Request{Name: "far", Identity: "impersonate", SkipCheck: true,
		Kubeconfig: secrets.NewValue(bytes.ReplaceAll(member.Kubeconfig(), []byte(u.Host), []byte(wire.Addr().String())))})
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
	wire.cut()
	leavesNothing(t, func(dia e2e.Dialect) {
		g.Env = dia.Env
		exec := g.Start(t, bin, "-n", ns, "exec", "-i", "shell", "--", "sh", "-c", "echo started; sleep 1000")
		exec.Line("started")
		logs := g.Start(t, bin, "-n", ns, "logs", "-f", "talker-a")
		logs.Line("a ")
		pf, addr := e2e.PortForward(t, g, bin, ns, port)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		echoed(t, conn, "before")
		wire.cut()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a forwarded connection goes on: %v", dia.Name, err)
		}
		_ = conn.Close()
		if code := exec.ExitCode(); code == 0 && dia.Name == "websocket" { // by SPDY kubectl takes it for success
			t.Errorf("%s: a command that was cut looks whole", dia.Name)
		}
		if code := logs.ExitCode(); code == 0 {
			t.Errorf("%s: a log that was cut looks whole", dia.Name)
		}
		_ = pf.Cmd.Process.Signal(syscall.SIGKILL) // it may wait for the next connection
		pf.ExitCode()
	})
}

// wire carries connections to an address until it is cut; after that, new ones.
type wire struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: ln}
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

// cut resets all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	w.conns = nil
}

// TestMemberDies holds: when a member goes, its streams end at the client as they do without a gateway: none hangs, and none looks
// whole that would not look so. (By SPDY, kubectl takes a connection that broke off for a command that succeeded.)
func TestMemberDies(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member2"}, "shell", "talker-a")
	bin := e2e.Clusters.BuiltKubectl()
	member := e2e.Clusters.Cluster("member2")
	for _, dia := range e2e.Dialects {
		t.Run(dia.Name, func(t *testing.T) {
			var execs, logs [2]*e2e.Session
			for i, k := range []e2e.Kubectl{e2e.Direct("member2"), e2e.Through(t, "member2")} {
				k.Env = dia.Env
				execs[i] = k.Start(t, bin, "-n", ns, "exec", "-i", "shell", "--", "sh", "-c", "echo started; sleep 1000")
				execs[i].Line("started")
				logs[i] = k.Start(t, bin, "-n", ns, "logs", "-f", "talker-a")
				logs[i].Line("a ")
			}
			if err := member.Kill(t.Context(), cluster.APIServer); err != nil {
				t.Fatal(err)
			}
			for _, s := range [][2]*e2e.Session{execs, logs} {
				if d, g := s[0].ExitCode(), s[1].ExitCode(); d != g && dia.Name == "websocket" { // by SPDY it is chance
					t.Errorf("%s: exit %d directly, %d through the gateway\n%s\n%s", s[1].What, d, g, s[0].Stderr, s[1].Stderr)
				}
			}
			if code := logs[1].ExitCode(); code == 0 {
				t.Errorf("a log that was cut looks whole: %s", logs[1].Stderr)
			}
			if err := member.Restart(t.Context(), cluster.APIServer); err != nil {
				t.Fatal(err)
			}
			g := e2e.Through(t, "member2")
			g.Env = dia.Env
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
