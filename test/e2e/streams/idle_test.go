package streams_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// silence is longer than the gateway's timeout for a request's header, 10 s.
const silence = 12 * time.Second

// TestIdleStreams: idle shells and watches must stay open, unless there is an idle timeout.
func TestIdleStreams(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "reader")
	port := e2e.EchoServer(t)
	gatewayWith := func(idle time.Duration) e2e.Kubectl {
		h := e2e.StartGateway(t, t.TempDir(), server.Inline, func(cfg *server.Config) {
			cfg.PingPeriod, cfg.StallTimeout, cfg.ProbeInterval, cfg.IdleTimeout = 300*time.Millisecond, silence-2*time.Second,
				time.Second, idle
		})
		t.Cleanup(func() { h.Stop(); <-h.Stopped })
		return e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "member1"}
	}
	type sessions struct{ execs, forwards, watches, logs []*e2e.Session }
	open := func(k e2e.Kubectl, bins map[string]string) (s sessions) {
		for _, bin := range bins {
			for _, dialect := range e2e.Dialects {
				k.Env = dialect.Env
				s.execs = append(s.execs, k.Start(t, bin, "-n", ns, "exec", "-i", "shell", "--", "cat"))
				s.forwards = append(s.forwards, k.Start(t, bin, "-n", ns, "port-forward", "shell", fmt.Sprintf(":%d", port)))
			}
			s.watches = append(s.watches, k.Start(t, bin, "-n", ns, "get", "pods", "-w", "-L", "woken",
				"--field-selector=metadata.name=reader"))
			s.logs = append(s.logs, k.Start(t, bin, "-n", ns, "logs", "-f", "reader"))
		}
		return s
	}
	limited := open(gatewayWith(2*time.Second), map[string]string{"PATH": e2e.Clusters.BuiltKubectl()})
	unlimited := open(gatewayWith(time.Hour), e2e.Kubectls())

	conns, addrs := dialForwards(t, unlimited.forwards)
	for _, s := range unlimited.execs {
		_, _ = fmt.Fprintln(s.Stdin, "early")
		s.Line("early")
	}
	for _, s := range unlimited.watches {
		s.Line("reader")
	}
	d := e2e.Direct("member1")
	attached := d.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "attach", "-i", "reader")
	marker := fmt.Sprint("woken-", time.Now().UnixNano())
	_, _ = fmt.Fprintln(attached.Stdin, "before", marker)
	for _, s := range unlimited.logs {
		s.Line("got before " + marker)
	}
	e2e.Idle(silence)

	d.Must(t, "-n", ns, "label", "pod", "reader", "--overwrite", "woken="+marker)
	_, _ = fmt.Fprintln(attached.Stdin, marker)
	for i, s := range unlimited.execs {
		_, _ = fmt.Fprintln(s.Stdin, marker)
		s.Line(marker)
		_ = s.Stdin.Close()
		if code := s.ExitCode(); code != 0 {
			t.Errorf("exec %d: exit %d\n%s", i, code, s.Stderr)
		}
	}
	for i, conn := range conns {
		checkEcho(t, conn, fmt.Sprint("late ", i))
		if got, err := e2e.RoundTrip(addrs[i], []byte(marker)); err != nil || string(got) != marker {
			t.Errorf("a new connection of port-forward %d: %q, %v", i, got, err)
		}
	}
	for _, s := range unlimited.watches {
		s.Line(marker)
	}
	for _, s := range unlimited.logs {
		s.Line("got " + marker)
	}
	for _, kind := range [][]*e2e.Session{limited.execs, limited.forwards, limited.watches, limited.logs} {
		for _, s := range kind {
			s.ExitCode()
		}
	}
}

// dialForwards opens and uses a connection of each port-forward.
func dialForwards(t *testing.T, forwards []*e2e.Session) (conns []net.Conn, addrs []string) {
	t.Helper()
	for i, s := range forwards {
		addr, _, _ := strings.Cut(strings.TrimPrefix(s.Line("Forwarding from 127.0.0.1:"), "Forwarding from "), " ")
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		checkEcho(t, conn, fmt.Sprint("early ", i))
		conns, addrs = append(conns, conn), append(addrs, addr)
	}
	return conns, addrs
}

func checkEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(e2e.Patience))
	got := make([]byte, len(text))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("%s: %q, %v", text, got, err)
	}
	_ = conn.SetDeadline(time.Time{})
}
