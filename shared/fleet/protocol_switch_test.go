package fleet_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// switchingMember is a member that switches protocols without a request for it, and then sends no data.
type switchingMember struct {
	*clustertest.Member

	mu   sync.Mutex
	open map[net.Conn]bool // connections that have switched
	over bool              // whether end was called
}

func newSwitchingMember(t *testing.T) *switchingMember {
	t.Helper()
	m := &switchingMember{Member: &clustertest.Member{}, open: map[net.Conn]bool{}}
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		m.mu.Lock()
		over := m.over
		m.open[conn] = true
		m.mu.Unlock()
		if !over {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn) // until the gateway closes the connection
		}
		m.mu.Lock()
		delete(m.open, conn)
		m.mu.Unlock()
	}))
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	m.StartTLS() // without HTTP/2, in which there is no switch
	t.Cleanup(m.Close)
	t.Cleanup(m.end)
	return m
}

func (m *switchingMember) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	for c := range m.open {
		_ = c.Close()
	}
}

func (m *switchingMember) hasNoConnections() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open) == 0
}

// TestFleetSwitchedProtocols fails if a member that switches protocols delays the others, or leaks a connection.
func TestFleetSwitchedProtocols(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	version := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1/") {
			if r.URL.Query().Get("watch") == "" {
				respond(200, podList("5", "x/one"))(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		switch r.URL.Path {
		case "/version":
			respond(200, "{}")(w, r)
		case "/api", "/apis":
			respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)(w, r)
		default:
			refuse(404, "NotFound", r.URL.Path)(w, r)
		}
	}
	h.AddCluster("a", clustertest.NewMember(t, version).Kubeconfig(`{token: t}`))
	m := newSwitchingMember(t)
	h.AddCluster("b", m.Kubeconfig(`{token: t}`))
	h.AddRegistry("pods", allPods)
	stuck := time.AfterFunc(gatewaytest.FleetDeadline-10*time.Second, func() {
		t.Error("a response waits for the member that switched protocols")
		m.end()
	})
	defer stuck.Stop()

	const message = `cluster "b" switched protocols, which was not requested`
	wantWarning := func(path string, resp *http.Response) {
		t.Helper()
		quoted := strings.ReplaceAll(message, `"`, `\"`)
		if resp.StatusCode != 200 ||
			!slices.ContainsFunc(resp.Header["Warning"], func(v string) bool { return strings.Contains(v, quoted) }) {
			t.Errorf("%s: %s, %q", path, resp.Status, resp.Header["Warning"])
		}
	}
	l, resp := h.list("/fleet/api/v1/pods", nil)
	if wantWarning("list", resp); l.names() != "one@a" {
		t.Errorf("%q", l.names())
	}
	for _, path := range []string{"/fleet/api", "/fleet/apis"} {
		wantWarning(path, h.Do("GET", path, nil, ""))
	}
	watch := h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, "")
	wantWarning("watch", watch)
	_ = watch.Body.Close()
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?strict", nil, ""), 502, "members_failed", message)
	for _, path := range []string{"/fleet/api/v1/pods?clusters=b", "/fleet/api/v1/pods?watch=1&clusters=b",
		"/fleet/api/v1/namespaces/x/pods/one@b", "/fleet/version?clusters=b"} {
		gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), 502, "members_failed", message)
	}
	gatewaytest.WantStatus(t, h.Do("DELETE", "/fleet/api/v1/namespaces/x/pods/one@b", nil, ""), 502, "members_failed",
		message)
	for _, path := range []string{"/clusters/b/api/v1/pods", "/clusters/b/api/v1/pods?watch=1",
		"/clusters/b/api/v1/namespaces/x/pods/one"} {
		gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), 502, "aborted", message)
	}
	waittest.Until(t, "switched connections are closed", m.hasNoConnections)
}
