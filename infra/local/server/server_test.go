package server

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/config"
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
