package streams_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestBridgeProgram: a deployment of the bridge must not break watches or sessions.
func TestBridgeProgram(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	bin := e2e.Program(t, "websocket-bridge", "websocket-bridge")
	const delay = 2 * time.Second
	first := e2e.StartBridgeProgram(t, bin, "CLUSTERPASS_DRAIN_DELAY="+delay.String(), "CLUSTERPASS_DRAIN_TIMEOUT=110s")
	// The bridge reserves 4 seconds of the timeout to close streams.
	second := e2e.StartBridgeProgram(t, bin, "CLUSTERPASS_DRAIN_DELAY=100ms", "CLUSTERPASS_DRAIN_TIMEOUT=16s")
	pass, err := os.ReadFile(e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	k := e2e.Kubectl{Context: "member1",
		Kubeconfig: e2e.WriteFile(t, strings.ReplaceAll(string(pass), e2e.HostOf(t, e2e.Shared(t).Kubeconfig),
			e2e.BridgeFront(t, first, second)))}
	cfg, err := clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	shell := k.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "exec", "-i", "shell", "--", "cat")
	_, _ = fmt.Fprintln(shell.Stdin, "before")
	shell.Line("before")

	checkNoGap(t, cfg, func() {
		waittest.Until(t, "bridge counts its streams", func() bool {
			return first.Metric(`clusterpass_streams_open{cluster="member1",kind="exec"}`) == "1" &&
				first.Metric(`clusterpass_streams_open{cluster="member1",kind="watch"}`) == "2"
		})
		signalled := time.Now()
		_ = first.Cmd.Process.Signal(syscall.SIGTERM)
		waittest.Until(t, "bridge is draining", func() bool {
			code, _ := first.Get("/readyz")
			return code == http.StatusServiceUnavailable
		})
		conn, err := tls.Dial("tcp", first.Addr, &tls.Config{InsecureSkipVerify: true}) // its own certificate
		if err == nil {
			_ = conn.Close()
		} else if time.Since(signalled) < delay {
			t.Errorf("calls are refused before anybody could notice: %v", err)
		}
		waittest.Until(t, "watches have ended", func() bool {
			return first.Metric(`clusterpass_stream_duration_seconds_count{cluster="member1",kind="watch"}`) == "2"
		})
	})
	if conn, err := tls.Dial("tcp", first.Addr, &tls.Config{InsecureSkipVerify: true}); err == nil { // its own certificate
		_ = conn.Close()
		t.Error("watches have ended, and the listener is open")
	}
	_, _ = fmt.Fprintln(shell.Stdin, "while it drains")
	shell.Line("while it drains")
	if code, text := first.Get("/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(text, "[-]draining failed: shutting down\n") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	for series, want := range map[string]string{
		`clusterpass_streams_open{cluster="member1",kind="exec"}`:                             "1",
		`clusterpass_streams_open{cluster="member1",kind="watch"}`:                            "0",
		`clusterpass_stream_failures_total{cluster="member1",kind="watch",reason="draining"}`: "2",
		`clusterpass_stream_bytes_total{cluster="member1",direction="in",kind="exec"}`:        "",
	} {
		if got := first.Metric(series); got != want && want != "" || got == "" {
			t.Errorf("%s %s, want %s", series, got, want)
		}
	}
	_ = shell.Stdin.Close()
	if code := shell.ExitCode(); code != 0 {
		t.Errorf("the session ended with %d\n%s", code, shell.Stderr)
	}
	if code := first.ExitCode(); code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}

	checkShutdownClosesSessions(t, k, ns, second)

	t.Run("a drain that is too long", func(t *testing.T) {
		checkDrainTimeoutLimit(t, bin, first.Cmd.Env[2:])
	})
}

func checkDrainTimeoutLimit(t *testing.T, bin string, env []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin)
	cmd.Env = append([]string{"CLUSTERPASS_DRAIN_TIMEOUT=111s"}, env...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	_ = cmd.Run()
	const want = "CLUSTERPASS_DRAIN_TIMEOUT: want more than 0 and at most 1m50s; for example " +
		"CLUSTERPASS_DRAIN_TIMEOUT=90s\n"
	if cmd.ProcessState.ExitCode() != 2 || errOut.String() != want {
		t.Errorf("%v\n%s", cmd.ProcessState, &errOut)
	}
}

func checkShutdownClosesSessions(t *testing.T, k e2e.Kubectl, ns string, bridge *e2e.BridgeProgram) {
	t.Helper()
	left := e2e.DialWebsocket(t, k, "/api/v1/namespaces/"+ns+"/pods/shell/exec?command=cat&stdin=1&stdout=1",
		"v5.channel.k8s.io")
	_ = bridge.Cmd.Process.Signal(syscall.SIGTERM)
	for {
		_, _, err := left.ReadMessage()
		var closed *websocket.CloseError
		if err == nil {
			continue // the session has begun
		}
		if !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway ||
			closed.Text != "the bridge is shutting down; call again" {
			t.Errorf("a session that does not end: %v", err)
		}
		break
	}
	if code := bridge.ExitCode(); code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}

}
