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

// A member that switches protocols unasked must not block the gateway.
func TestCallSwitchedProtocols(t *testing.T) {
	ended := make(chan bool, 1) // whether the client closed the connection
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
