package e2e

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/frontdoor"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// BridgeProgram is a bridge in its own process, with the configuration of its container behind a load balancer.
type BridgeProgram struct {
	t           *testing.T
	Cmd         *exec.Cmd
	Addr, admin string
	ended       chan struct{}
}

// Get calls the operators' port and returns the status code and the body.
func (b *BridgeProgram) Get(path string) (int, string) {
	resp, err := http.Get("http://" + b.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// Metric returns the value of a series of /metrics, or "".
func (b *BridgeProgram) Metric(series string) string {
	b.t.Helper()
	_, text := b.Get("/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ExitCode waits for the program's exit code.
func (b *BridgeProgram) ExitCode() int {
	b.t.Helper()
	select {
	case <-b.ended:
	case <-time.After(Patience):
		b.t.Fatal("the bridge does not end")
	}
	return b.Cmd.ProcessState.ExitCode()
}

// StartBridgeProgram runs the bridge on the stores of the shared gateway, until a signal or the end of the test.
func StartBridgeProgram(t *testing.T, bin string, env ...string) *BridgeProgram {
	t.Helper()
	data := filepath.Join(Shared(t).Dir, "data")
	ca, err := pki.LoadCA(filepath.Join(data, "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	b := &BridgeProgram{t: t, Cmd: exec.Command(bin), ended: make(chan struct{})}
	b.Cmd.Env = append(env, "CLUSTERPASS_STORE=dir:"+data, "CLUSTERPASS_CLIENT_CA="+string(ca.PEM()),
		"CLUSTERPASS_ALLOW_LOOPBACK=true",
		"CLUSTERPASS_LISTEN=127.0.0.1:0", "CLUSTERPASS_ADMIN_LISTEN=127.0.0.1:0", "CLUSTERPASS_TUNNEL_LISTEN=127.0.0.1:0",
		"CLUSTERPASS_SELF_SIGNED=true", "CLUSTERPASS_MTLS_HEADER="+string(identity.ALBHeader))
	log, err := b.Cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.Cmd.Process.Kill()
		<-b.ended
	})
	listening := make(chan struct{})
	go func() {
		defer close(b.ended)
		listens := false
		for lines := bufio.NewScanner(log); lines.Scan(); {
			_, _ = fmt.Fprintln(Printed, lines.Text())
			var event struct{ Msg, Address, Admin string }
			if json.Unmarshal(lines.Bytes(), &event) == nil && event.Msg == "listening" && !listens {
				b.Addr, b.admin, listens = event.Address, event.Admin, true
				close(listening)
			}
		}
		_ = b.Cmd.Wait() // ProcessState has what matters
	}()
	select {
	case <-listening:
	case <-b.ended:
		t.Fatalf("the bridge ended: %v\n%s", b.Cmd.ProcessState, Printed)
	case <-time.After(Patience):
		t.Fatal("the bridge does not listen")
	}
	waittest.Until(t, "bridge is ready", func() bool { code, _ := b.Get("/readyz"); return code == http.StatusOK })
	return b
}

// BridgeFront returns the address of a load balancer as on AWS. It terminates TLS, writes client certificates into a
// header, and chooses the first bridge that is ready.
func BridgeFront(t *testing.T, bridges ...*BridgeProgram) string {
	t.Helper()
	ca, err := pki.LoadCA(filepath.Join(Shared(t).Dir, "data", "pki"), "server-ca")
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
				if code, _ := b.Get("/readyz"); code == http.StatusOK {
					r.SetURL(&url.URL{Scheme: "https", Host: b.Addr})
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
