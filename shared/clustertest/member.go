package clustertest

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Request is a request that a member received.
type Request struct {
	Method, URI, Body, Proto string
	Header                   http.Header
	Trailer                  http.Header // nil for none
}

// Member is a fake API server of a member cluster: TLS, HTTP/2, and a handler. It is safe for concurrent use.
type Member struct {
	*httptest.Server

	opened   atomic.Int64
	closed   atomic.Int64
	mu       sync.Mutex
	requests []Request
}

// NewMember starts a member that responds with h, after it has recorded the request with its whole body.
func NewMember(tb testing.TB, h http.HandlerFunc) *Member {
	tb.Helper()
	m := &Member{}
	m.start(tb, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		m.requests = append(m.requests,
			Request{r.Method, r.RequestURI, string(body), r.Proto, r.Header.Clone(), r.Trailer.Clone()})
		m.mu.Unlock()
		h(w, r)
	})
	return m
}

// NewStreamingMember starts a member that records nothing and leaves requests' bodies to h.
func NewStreamingMember(tb testing.TB, h http.HandlerFunc) *Member {
	tb.Helper()
	m := &Member{}
	m.start(tb, h)
	return m
}

func (m *Member) start(tb testing.TB, h http.HandlerFunc) {
	m.Server = httptest.NewUnstartedServer(h)
	m.EnableHTTP2 = true
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	m.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			m.opened.Add(1)
		case http.StateClosed:
			m.closed.Add(1)
		}
	}
	m.StartTLS()
	tb.Cleanup(m.Close)
}

// Requests returns all requests since the last call of TakeRequests.
func (m *Member) Requests() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// TakeRequests returns all requests since its last call, and removes them.
func (m *Member) TakeRequests() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.requests
	m.requests = nil
	return out
}

// OpenedConnections returns how many connections have been opened.
func (m *Member) OpenedConnections() int { return int(m.opened.Load()) }

// ClosedConnections returns how many connections have been closed. It does not count hijacked connections.
func (m *Member) ClosedConnections() int { return int(m.closed.Load()) }

// Kubeconfig returns a kubeconfig for the member. user is the user entry in YAML or JSON.
func (m *Member) Kubeconfig(user string) []byte { return ServerKubeconfig(m.Server, user) }

// ServerKubeconfig is Member.Kubeconfig for any TLS server.
func ServerKubeconfig(s *httptest.Server, user string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return Kubeconfig(s.URL, ca, user)
}

// Kubeconfig returns a kubeconfig with a server's URL and its CA in PEM. It is JSON if user is.
func Kubeconfig(server string, ca []byte, user string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"x",`+
		`"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"u","user":%s}]}`,
		server, base64.StdEncoding.EncodeToString(ca), user)
}
