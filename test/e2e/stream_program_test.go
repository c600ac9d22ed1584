package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/frontdoor"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/pki"
)

// bridgeProgram is a bridge as a process of its own, as it runs in its container behind a balancer.
type bridgeProgram struct {
	t           *testing.T
	cmd         *exec.Cmd
	addr, admin string
	ended       chan struct{}
}

// startBridge runs the bridge on the stores of the gateway that the tests share, until it is told to end or the test does.
func startBridge(t *testing.T, bin string, env ...string) *bridgeProgram {
	t.Helper()
	data := filepath.Join(gateway(t).dir, "data")
	b := &bridgeProgram{t: t, cmd: exec.Command(bin), ended: make(chan struct{})}
	b.cmd.Env = append(env, "CLUSTERPASS_STORE=dir:"+data, "CLUSTERPASS_CLIENT_CA="+filepath.Join(data, "pki", "client-ca.pem"), "CLUSTERPASS_ALLOW_LOOPBACK=true",
		"CLUSTERPASS_LISTEN=127.0.0.1:0", "CLUSTERPASS_ADMIN_LISTEN=127.0.0.1:0", "CLUSTERPASS_TUNNEL_LISTEN=127.0.0.1:0", "CLUSTERPASS_SELF_SIGNED=true", "CLUSTERPASS_MTLS_HEADER="+string(identity.ALBHeader))
	log, err := b.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		<-b.ended
	})
	listening := make(chan struct{})
	go func() {
		defer close(b.ended)
		said := false
		for lines := bufio.NewScanner(log); lines.Scan(); {
			_, _ = fmt.Fprintln(printed, lines.Text())
			var event struct{ Msg, Address, Admin string }
			if json.Unmarshal(lines.Bytes(), &event) == nil && event.Msg == "listening" && !said {
				b.addr, b.admin, said = event.Address, event.Admin, true
				close(listening)
			}
		}
		_ = b.cmd.Wait() // ProcessState has what matters
	}()
	select {
	case <-listening:
	case <-b.ended:
		t.Fatalf("the bridge ended: %v\n%s", b.cmd.ProcessState, printed)
	case <-time.After(patience):
		t.Fatal("the bridge does not listen")
	}
	eventually(t, func() bool { code, _ := b.ask("/readyz"); return code == http.StatusOK })
	return b
}

// ask reads from the operators' port.
func (b *bridgeProgram) ask(path string) (int, string) {
	resp, err := http.Get("http://" + b.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// metric returns the value of a series of /metrics, "" where there is none.
func (b *bridgeProgram) metric(series string) string {
	b.t.Helper()
	_, text := b.ask("/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ends waits for the program's exit code.
func (b *bridgeProgram) ends() int {
	b.t.Helper()
	select {
	case <-b.ended:
	case <-time.After(patience):
		b.t.Fatal("the bridge does not end")
	}
	return b.cmd.ProcessState.ExitCode()
}

// before puts a balancer before bridges, as on AWS: it ends TLS, writes client certificates into a header, and sends each call to the
// first bridge that is ready. It returns its address.
func before(t *testing.T, bridges ...*bridgeProgram) string {
	t.Helper()
	ca, err := pki.LoadCA(filepath.Join(gateway(t).dir, "data", "pki"), "server-ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Server(t.TempDir(), "balancer", []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // nor does a balancer on AWS
	t.Cleanup(transport.CloseIdleConnections)
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			for _, b := range bridges {
				if code, _ := b.ask("/readyz"); code == http.StatusOK {
					r.SetURL(&url.URL{Scheme: "https", Host: b.addr})
					break
				}
			}
			r.Out.Host = r.In.Host
			r.Out.Header.Set(string(identity.ALBHeader), identity.FormatALBHeader(r.In.TLS.PeerCertificates))
		},
	})
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.TLS = frontdoor.TLS(cert)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return strings.TrimPrefix(srv.URL, "https://")
}

// TestBridgeProgram holds for the program as it is run: two bridges behind a balancer, of which first one and then the other is told to
// end.
func TestBridgeProgram(t *testing.T) {
	withStreamPods(t, "member1")
	bin := filepath.Join(t.TempDir(), "websocket-bridge")
	program(t, bin, "websocket-bridge")
	const delay = 2 * time.Second
	first := startBridge(t, bin, "CLUSTERPASS_DRAIN_DELAY="+delay.String(), "CLUSTERPASS_DRAIN_TIMEOUT=110s")
	second := startBridge(t, bin, "CLUSTERPASS_DRAIN_DELAY=100ms", "CLUSTERPASS_DRAIN_TIMEOUT=16s") // of which farewells have 4
	pass, err := os.ReadFile(gateway(t).pass)
	if err != nil {
		t.Fatal(err)
	}
	k := kubectl{context: "member1", kubeconfig: write(t, strings.ReplaceAll(string(pass), host(t, gateway(t).pass), before(t, first, second)))}
	cfg, err := clientcmd.BuildConfigFromFlags("", k.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	shell := k.start(t, clusters.BuiltKubectl(), "-n", "streams", "exec", "-i", "shell", "--", "cat")
	_, _ = fmt.Fprintln(shell.stdin, "before")
	shell.line("before")

	withoutGap(t, cfg, func() {
		eventually(t, func() bool {
			return first.metric(`clusterpass_streams_open{cluster="member1",kind="exec"}`) == "1" &&
				first.metric(`clusterpass_streams_open{cluster="member1",kind="watch"}`) == "2"
		})
		told := time.Now()
		_ = first.cmd.Process.Signal(syscall.SIGTERM)
		eventually(t, func() bool { code, _ := first.ask("/readyz"); return code == http.StatusServiceUnavailable })
		conn, err := tls.Dial("tcp", first.addr, &tls.Config{InsecureSkipVerify: true}) // its own certificate
		if err == nil {
			_ = conn.Close()
		} else if time.Since(told) < delay {
			t.Errorf("calls are refused before anybody could notice: %v", err)
		}
		eventually(t, func() bool {
			return first.metric(`clusterpass_stream_duration_seconds_count{cluster="member1",kind="watch"}`) == "2"
		})
	})
	if conn, err := tls.Dial("tcp", first.addr, &tls.Config{InsecureSkipVerify: true}); err == nil { // its own certificate
		_ = conn.Close()
		t.Error("watches have ended, and the listener is open")
	}
	_, _ = fmt.Fprintln(shell.stdin, "while it drains")
	shell.line("while it drains")
	if code, text := first.ask("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "[-]draining failed: shutting down\n") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	for series, want := range map[string]string{
		`clusterpass_streams_open{cluster="member1",kind="exec"}`:                             "1",
		`clusterpass_streams_open{cluster="member1",kind="watch"}`:                            "0",
		`clusterpass_stream_failures_total{cluster="member1",kind="watch",reason="draining"}`: "2",
		`clusterpass_stream_bytes_total{cluster="member1",direction="in",kind="exec"}`:        "",
	} {
		if got := first.metric(series); got != want && want != "" || got == "" {
			t.Errorf("%s %s, want %s", series, got, want)
		}
	}
	_ = shell.stdin.Close()
	if code := shell.ends(); code != 0 {
		t.Errorf("the session ended with %d\n%s", code, shell.errOut)
	}
	if code := first.ends(); code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}

	left := dial(t, k, "/api/v1/namespaces/streams/pods/shell/exec?command=cat&stdin=1&stdout=1", "v5.channel.k8s.io")
	_ = second.cmd.Process.Signal(syscall.SIGTERM)
	for {
		_, _, err := left.ReadMessage()
		var closed *websocket.CloseError
		if err == nil {
			continue // the session has begun
		}
		if !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway || closed.Text != "the bridge is shutting down; call again" {
			t.Errorf("a session that does not end: %v", err)
		}
		break
	}
	if code := second.ends(); code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}

	t.Run("a drain that is too long", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin)
		cmd.Env = append([]string{"CLUSTERPASS_DRAIN_TIMEOUT=111s"}, first.cmd.Env[2:]...)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		_ = cmd.Run()
		const want = "CLUSTERPASS_DRAIN_TIMEOUT: want more than 0 and at most 1m50s; for example CLUSTERPASS_DRAIN_TIMEOUT=90s\n"
		if cmd.ProcessState.ExitCode() != 2 || errOut.String() != want {
			t.Errorf("%v\n%s", cmd.ProcessState, &errOut)
		}
	})
}
