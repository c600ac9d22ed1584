package cluster

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestCallByMerged fails if probes of hundreds of members opened connections beside those of lists.
func TestCallByMerged(t *testing.T) {
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}))
	srv.EnableHTTP2 = true
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	m := newGuardedMember(t, srv.URL)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	for _, p := range m.pools {
		p.(*http.Transport).TLSClientConfig.RootCAs = roots
	}
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
			ctx = ByMerged(ctx)
		}
		if err := m.Call(ctx, http.MethodGet, "/version", nil, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		if got := opened.Load(); got != want {
			t.Errorf("%d connections, want %d", got, want)
		}
	}
}
