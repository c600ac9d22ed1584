package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/server"
)

// silence is longer than the front door waits for a request's header, 10 s.
const silence = 12 * time.Second

// TestSilence holds: streams that are silent for longer than any interval of the gateway's live on, through the front door and the
// bridge; where the time that they may be silent is limited, they end.
func TestSilence(t *testing.T) {
	withStreamPods(t, "member1")
	port := echoServer(t)
	gatewayWith := func(idle time.Duration) kubectl {
		h := start(t, t.TempDir(), server.Inline, func(cfg *server.Config) {
			cfg.PingPeriod, cfg.StallTimeout, cfg.ProbeInterval, cfg.IdleTimeout = 300*time.Millisecond, silence-2*time.Second, time.Second, idle
		})
		t.Cleanup(func() { h.stop(); <-h.stopped })
		return kubectl{kubeconfig: h.pass, context: "member1"}
	}
	type sessions struct{ execs, forwards, watches, logs []*session }
	open := func(k kubectl, bins map[string]string) (s sessions) {
		for _, bin := range bins {
			for _, dia := range dialects {
				k.env = dia.env
				s.execs = append(s.execs, k.start(t, bin, "-n", "streams", "exec", "-i", "shell", "--", "cat"))
				s.forwards = append(s.forwards, k.start(t, bin, "-n", "streams", "port-forward", "shell", fmt.Sprintf(":%d", port)))
			}
			s.watches = append(s.watches, k.start(t, bin, "-n", "streams", "get", "pods", "-w", "-L", "woken", "--field-selector=metadata.name=reader"))
			s.logs = append(s.logs, k.start(t, bin, "-n", "streams", "logs", "-f", "reader"))
		}
		return s
	}
	ending := open(gatewayWith(2*time.Second), map[string]string{"PATH": clusters.BuiltKubectl()})
	living := open(gatewayWith(time.Hour), kubectls())

	var conns []net.Conn
	var addrs []string
	for i, s := range living.forwards {
		addr, _, _ := strings.Cut(strings.TrimPrefix(s.line("Forwarding from 127.0.0.1:"), "Forwarding from "), " ")
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		echoed(t, conn, fmt.Sprint("early ", i))
		conns, addrs = append(conns, conn), append(addrs, addr)
	}
	for _, s := range living.execs {
		_, _ = fmt.Fprintln(s.stdin, "early")
		s.line("early")
	}
	for _, s := range living.watches {
		s.line("reader")
	}
	d := direct("member1")
	attached := d.start(t, clusters.BuiltKubectl(), "-n", "streams", "attach", "-i", "reader")
	word := fmt.Sprint("woken-", time.Now().UnixNano())
	_, _ = fmt.Fprintln(attached.stdin, "before", word)
	for _, s := range living.logs {
		s.line("got before " + word)
	}
	time.Sleep(silence)

	d.must(t, "-n", "streams", "label", "pod", "reader", "--overwrite", "woken="+word)
	_, _ = fmt.Fprintln(attached.stdin, word)
	for i, s := range living.execs {
		_, _ = fmt.Fprintln(s.stdin, word)
		s.line(word)
		_ = s.stdin.Close()
		if code := s.ends(); code != 0 {
			t.Errorf("exec %d: exit %d\n%s", i, code, s.errOut)
		}
	}
	for i, conn := range conns {
		echoed(t, conn, fmt.Sprint("late ", i))
		if got, err := roundTrip(addrs[i], []byte(word)); err != nil || string(got) != word {
			t.Errorf("a new connection of port-forward %d: %q, %v", i, got, err)
		}
	}
	for _, s := range living.watches {
		s.line(word)
	}
	for _, s := range living.logs {
		s.line("got " + word)
	}
	for _, kind := range [][]*session{ending.execs, ending.forwards, ending.watches, ending.logs} {
		for _, s := range kind {
			s.ends()
		}
	}
}

// echoed sends a text and reads it back.
func echoed(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(patience))
	got := make([]byte, len(text))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("%s: %q, %v", text, got, err)
	}
	_ = conn.SetDeadline(time.Time{})
}
