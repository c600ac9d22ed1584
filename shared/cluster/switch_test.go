package cluster

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
)

// TestCallSwitchedProtocols holds: a member that switches protocols where nobody asked for it is not waited for, and its connection ends.
func TestCallSwitchedProtocols(t *testing.T) {
	ended := make(chan bool, 1) // by the one who calls
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_, err = io.Copy(io.Discard, conn)
		ended <- !errors.Is(err, os.ErrDeadlineExceeded)
	}))
	defer srv.Close()
	server, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	m := &Member{Server: server, Credential: kubeconfig.Credential{Token: "t"}, REST: srv.Client().Transport}
	var out struct{}
	err = m.Call(t.Context(), http.MethodGet, "/version", nil, &out)
	var answered *CallError
	if !errors.As(err, &answered) || answered.Code != http.StatusSwitchingProtocols {
		t.Errorf("error %v", err)
	}
	if !<-ended {
		t.Error("its connection stays open")
	}
}
