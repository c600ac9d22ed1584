package cluster

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// countingServer is a member that counts the connections that were opened.
type countingServer struct {
	*httptest.Server
	opened atomic.Int32
}

// newCountingServer calls before, if it is not nil, before each response.
func newCountingServer(t *testing.T, before func()) *countingServer {
	t.Helper()
	respond := func(w http.ResponseWriter, _ *http.Request) {
		if before != nil {
			before()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}
	s := &countingServer{Server: httptest.NewUnstartedServer(http.HandlerFunc(respond))}
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.opened.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// newTrustingMember returns a member that trusts the server's certificate.
func newTrustingMember(t *testing.T, srv *httptest.Server) *Member {
	t.Helper()
	m := newGuardedMember(t, srv.URL)
	trust(m, srv)
	return m
}

func trust(m *Member, srv *httptest.Server) {
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	for _, p := range m.pools {
		p.(*http.Transport).TLSClientConfig.RootCAs = roots
	}
}

// TestCallWithBuffer fails if probes of hundreds of members opened connections beside those of lists.
func TestCallWithBuffer(t *testing.T) {
	srv := newCountingServer(t, nil)
	m := newTrustingMember(t, srv.Server)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := m.Merged.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for _, want := range []int32{1, 2} {
		ctx := t.Context()
		if want == 1 {
			ctx = WithBuffer(ctx, SmallBuffer)
		}
		if err := m.Call(ctx, http.MethodGet, "/version", nil, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		if got := srv.opened.Load(); got != want {
			t.Errorf("%d connections, want %d", got, want)
		}
	}
}
