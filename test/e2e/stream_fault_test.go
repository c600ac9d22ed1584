package e2e

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
	"github.com/clusterpass/clusterpass/test/cluster"
)

// sockets counts those that this process has open.
func sockets(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") { // else it was that of the directory
			n++
		}
	}
	return n
}

// leavesNothing runs something, and again for each dialect, and waits until this process has neither a goroutine nor a socket that it had
// not before. The gateway that the tests share runs in this process, too: when it finds that a member's health has changed, as it does of
// one that a busy machine keeps waiting, it renews its connections, and that says nothing of what was run.
func leavesNothing(t *testing.T, run func(dia dialect)) {
	t.Helper()
	renewed := func() int {
		if main == nil {
			return 0
		}
		return strings.Count(main.log.String(), "a member's health has changed")
	}
	for again := 0; ; again++ {
		renewedBefore, before, socketsBefore := renewed(), goleak.IgnoreCurrent(), sockets(t)
		for _, dia := range dialects {
			run(dia)
		}
		var err error
		var n int
		for range 150 { // goleak itself waits for less than a second, a connection that nobody uses for 90
			if err, n = goleak.Find(before), sockets(t); err == nil && n <= socketsBefore {
				return
			}
			time.Sleep(time.Second)
		}
		if renewed() == renewedBefore || again == 3 {
			t.Fatalf("%d sockets, %d before; %v", n, socketsBefore, err)
		}
		t.Logf("the gateway that the tests share has renewed connections; once more, after: %d sockets, %d before; %v", n, socketsBefore, err)
	}
}

// TestNothingIsLeft holds: however streams end, the gateway keeps neither a goroutine nor a socket of them.
func TestNothingIsLeft(t *testing.T) {
	withStreamPods(t, "member1")
	// Processes of functions come and go, and probes of health keep connections.
	h := start(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.ProbeInterval = 0 })
	t.Cleanup(func() { h.stop(); <-h.stopped })
	g := kubectl{kubeconfig: h.pass, context: "member1"}
	bin := clusters.BuiltKubectl()
	port := echoServer(t)
	g.must(t, "-n", "streams", "wait", "--for=condition=Ready", "pod/shell") // opens the connections that stay
	leavesNothing(t, func(dia dialect) {
		g.env = dia.env
		exec := g.start(t, bin, "-n", "streams", "exec", "-i", "shell", "--", "sh", "-c", "echo started; yes")
		exec.line("started")
		logs := g.start(t, bin, "-n", "streams", "logs", "-f", "talker-a")
		logs.line("a ")
		watch := g.start(t, bin, "-n", "streams", "get", "pods", "-w")
		watch.line("shell")
		pf, addr := forward(t, g, bin, port)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "half a messa")
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*session{exec, logs, watch, pf} { // in the middle of whatever they do
			_ = s.cmd.Process.Signal(syscall.SIGKILL)
			s.ends()
		}
		_ = conn.Close()
	})
}

// TestNetworkCut holds: when the connections to a member are cut in mid-stream, each client is told, and nothing of them is left.
func TestNetworkCut(t *testing.T) {
	withStreamPods(t, "member1")
	h := start(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.ProbeInterval = 0 })
	t.Cleanup(func() { h.stop(); <-h.stopped })
	member := clusters.Cluster("member1")
	u, err := url.Parse(member.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	wire := newWire(t, u.Host)
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: filepath.Join(h.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	reg := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects, Policy: policy.DialPolicy{AllowLoopback: true}}
	_, err = reg.Register(t.Context(), registration.Request{Name: "far", Identity: "impersonate", SkipCheck: true,
		Kubeconfig: secrets.NewValue(bytes.ReplaceAll(member.Kubeconfig(), []byte(u.Host), []byte(wire.Addr().String())))})
	if err != nil {
		t.Fatal(err)
	}
	pass, err := os.ReadFile(h.pass)
	if err != nil {
		t.Fatal(err)
	}
	g := kubectl{context: "member1", kubeconfig: write(t, strings.ReplaceAll(string(pass), "/clusters/member1", "/clusters/far"))}
	bin := clusters.BuiltKubectl()
	port := echoServer(t)
	g.must(t, "-n", "streams", "wait", "--for=condition=Ready", "pod/shell")
	wire.cut()
	leavesNothing(t, func(dia dialect) {
		g.env = dia.env
		exec := g.start(t, bin, "-n", "streams", "exec", "-i", "shell", "--", "sh", "-c", "echo started; sleep 1000")
		exec.line("started")
		logs := g.start(t, bin, "-n", "streams", "logs", "-f", "talker-a")
		logs.line("a ")
		pf, addr := forward(t, g, bin, port)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		echoed(t, conn, "before")
		wire.cut()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a forwarded connection goes on: %v", dia.name, err)
		}
		_ = conn.Close()
		if code := exec.ends(); code == 0 && dia.name == "websocket" { // by SPDY kubectl takes it for success
			t.Errorf("%s: a command that was cut looks whole", dia.name)
		}
		if code := logs.ends(); code == 0 {
			t.Errorf("%s: a log that was cut looks whole", dia.name)
		}
		_ = pf.cmd.Process.Signal(syscall.SIGKILL) // it may wait for the next connection
		pf.ends()
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
	withStreamPods(t, "member2")
	bin := clusters.BuiltKubectl()
	member := clusters.Cluster("member2")
	for _, dia := range dialects {
		t.Run(dia.name, func(t *testing.T) {
			var execs, logs [2]*session
			for i, k := range []kubectl{direct("member2"), through(t, "member2")} {
				k.env = dia.env
				execs[i] = k.start(t, bin, "-n", "streams", "exec", "-i", "shell", "--", "sh", "-c", "echo started; sleep 1000")
				execs[i].line("started")
				logs[i] = k.start(t, bin, "-n", "streams", "logs", "-f", "talker-a")
				logs[i].line("a ")
			}
			if err := member.Kill(t.Context(), cluster.APIServer); err != nil {
				t.Fatal(err)
			}
			for _, s := range [][2]*session{execs, logs} {
				if d, g := s[0].ends(), s[1].ends(); d != g && dia.name == "websocket" { // by SPDY it is chance
					t.Errorf("%s: exit %d directly, %d through the gateway\n%s\n%s", s[1].what, d, g, s[0].errOut, s[1].errOut)
				}
			}
			if code := logs[1].ends(); code == 0 {
				t.Errorf("a log that was cut looks whole: %s", logs[1].errOut)
			}
			if err := member.Restart(t.Context(), cluster.APIServer); err != nil {
				t.Fatal(err)
			}
			g := through(t, "member2")
			g.env = dia.env
			var r result
			eventually(t, func() bool {
				r = g.run(t, "-n", "streams", "exec", "shell", "--", "echo", "again")
				return r.code == 0
			})
			if r.stdout != "again\n" {
				t.Errorf("afterwards: %v", r)
			}
		})
	}
}
