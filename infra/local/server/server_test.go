package server

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestBusyPort: a second gateway on one machine fails at once, and the error names the flag that helps.
func TestBusyPort(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("CLUSTERPASS_DATA", t.TempDir())
	t.Setenv("CLUSTERPASS_LISTEN", ln.Addr().String())
	cfg := &Config{}
	if err := config.Load(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	err = Run(t.Context(), cfg, Output{io.Discard, io.Discard}, func() { t.Error("the gateway accepts requests") })
	if err == nil || !strings.Contains(err.Error(), "CLUSTERPASS_LISTEN: ") ||
		!strings.Contains(err.Error(), "; choose another address with --listen") {
		t.Errorf("error %v", err)
	}
}

// TestHandshakeErrorsAreLogged fails if an operator who sets the log level DEBUG does not see why TLS fails.
func TestHandshakeErrorsAreLogged(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("CLUSTERPASS_DATA", t.TempDir())
	t.Setenv("CLUSTERPASS_LOG_LEVEL", "DEBUG")
	cfg := &Config{}
	if err := config.Load(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Listen, cfg.TunnelListen, cfg.Kubeconfig = "127.0.0.1:0", "127.0.0.1:0", filepath.Join(t.TempDir(), "kubeconfig")
	var progress, log waittest.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, Output{&progress, &log}, func() {}) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	progress.WaitFor(t, "It has no clusters yet.")
	_, after, _ := strings.Cut(progress.String(), "https://")
	address, _, _ := strings.Cut(after, "\n")
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	log.WaitFor(t, "TLS handshake error")
}
