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

// straying is a member that answers each call by switching to a protocol that nobody asked for, and then says nothing.
type straying struct {
	*clustertest.Member

	mu   sync.Mutex
	open map[net.Conn]bool // that have switched
	over bool
}

func newStraying(t *testing.T) *straying {
	t.Helper()
	m := &straying{Member: &clustertest.Member{}, open: map[net.Conn]bool{}}
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
			_, _ = io.Copy(io.Discard, conn) // until the other side ends it
		}
		m.mu.Lock()
		delete(m.open, conn)
		m.mu.Unlock()
	}))
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	m.StartTLS() // of HTTP/1.1 only
	t.Cleanup(m.Close)
	t.Cleanup(m.end)
	return m
}

// end closes every connection, and those that come.
func (m *straying) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	for c := range m.open {
		_ = c.Close()
	}
}

func (m *straying) quiet() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open) == 0
}

// TestFleetSwitchedProtocols holds: a member that switches protocols where nobody asked for it costs its part of the answer and not more: not
// the others', nor the time until some deadline, nor a connection.
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
	m := newStraying(t)
	h.AddCluster("b", m.Kubeconfig(`{token: t}`))
	h.AddRegistry("pods", allPods)
	stuck := time.AfterFunc(gatewaytest.FleetDeadline-10*time.Second, func() {
		t.Error("some answer waits for the member that has switched protocols")
		m.end()
	})
	defer stuck.Stop()

	const says = `cluster "b" switched protocols, which nobody asked for`
	warned := func(path string, resp *http.Response) {
		t.Helper()
		quoted := strings.ReplaceAll(says, `"`, `\"`)
		if resp.StatusCode != 200 || !slices.ContainsFunc(resp.Header["Warning"], func(v string) bool { return strings.Contains(v, quoted) }) {
			t.Errorf("%s: %s, %q", path, resp.Status, resp.Header["Warning"])
		}
	}
	l, resp := h.list("/fleet/api/v1/pods", nil)
	if warned("list", resp); l.names() != "one@a" {
		t.Errorf("%q", l.names())
	}
	for _, path := range []string{"/fleet/api", "/fleet/apis"} {
		warned(path, h.Do("GET", path, nil, ""))
	}
	watch := h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, "")
	warned("watch", watch)
	_ = watch.Body.Close()
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?strict", nil, ""), 502, "members_failed", says)
	for _, path := range []string{"/fleet/api/v1/pods?clusters=b", "/fleet/api/v1/pods?watch=1&clusters=b", "/fleet/api/v1/namespaces/x/pods/one@b", "/fleet/version?clusters=b"} {
		gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), 502, "members_failed", says)
	}
	gatewaytest.WantStatus(t, h.Do("DELETE", "/fleet/api/v1/namespaces/x/pods/one@b", nil, ""), 502, "members_failed", says)
	for _, path := range []string{"/clusters/b/api/v1/pods", "/clusters/b/api/v1/pods?watch=1", "/clusters/b/api/v1/namespaces/x/pods/one"} {
		gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), 502, "aborted", says)
	}
	waittest.Until(t, "connections that have switched are closed", m.quiet)
}
