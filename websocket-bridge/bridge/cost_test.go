package bridge

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// callCost compares a gateway with a bare httputil.ReverseProxy, the minimum for any gateway.
type callCost struct {
	gateway, proxy func(tb testing.TB)
	protocol       *atomic.Value // string, of the last request to the cluster
}

// newCallCost returns functions that each send a request for a small object over a connection of their own. The proxy
// uses the protocol that the gateway uses for the method.
func newCallCost(tb testing.TB, method string) callCost {
	tb.Helper()
	object := strings.Repeat("x", 1000)
	protocol := &atomic.Value{}
	member := func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(r.Proto)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, object)
	}
	hs := serveWith(tb, Limits{}, Drain{}, gatewaytest.Options{
		Freshness: cluster.Freshness{Object: time.Minute, Secret: time.Minute}, MaxReadConns: 64,
	}, member)
	u, err := url.Parse(clustertest.NewStreamingMember(tb, member).URL)
	if err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, FlushInterval: -1,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: method != http.MethodGet,
		},
	})
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	tb.Cleanup(srv.Close)
	toProxy := hs.tls("alice")
	toProxy.InsecureSkipVerify = true
	const path = "/api/v1/namespaces/default"
	return callCost{
		gateway: caller(tb, hs.tls("alice"), method, "https://"+hs.addr+"/clusters/m"+path),
		proxy:   caller(tb, toProxy, method, srv.URL+path), protocol: protocol,
	}
}

func caller(tb testing.TB, cfg *tls.Config, method, target string) func(testing.TB) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	tb.Cleanup(client.CloseIdleConnections)
	return func(tb testing.TB) {
		r, err := http.NewRequestWithContext(tb.Context(), method, target, nil)
		if err != nil {
			tb.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			tb.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if closeErr := resp.Body.Close(); err != nil || closeErr != nil || resp.StatusCode != http.StatusOK {
			tb.Fatal(err, closeErr, resp.Status)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	cost := newCallCost(b, http.MethodGet)
	for name, call := range map[string]func(testing.TB){"gateway": cost.gateway, "ReverseProxy": cost.proxy} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call(b)
			}
		})
	}
}

// TestCallAllocations fails if a request became slower unnoticed. The limits are a third above the figures of this
// version, and a bare ReverseProxy with the same protocol to the cluster stands beside it.
func TestCallAllocations(t *testing.T) {
	const calls = 200
	for _, tt := range []struct {
		method, protocol string  // the latter to the cluster
		objects          float64 // more than the proxy's
		bytes            float64 // as a part of the proxy's
	}{
		{http.MethodGet, "HTTP/1.1", 42, 0.55},
		{http.MethodDelete, "HTTP/2.0", 68, 0.65},
	} {
		t.Run(tt.method, func(t *testing.T) {
			cost := newCallCost(t, tt.method)
			waittest.Until(t, "the gateway uses "+tt.protocol, func() bool {
				cost.gateway(t)
				return cost.protocol.Load() == tt.protocol
			})
			for range calls { // until all caches are warm
				cost.gateway(t)
			}
			gatewayObjects, gatewayBytes := alloctest.PerCall(calls, func() { cost.gateway(t) })
			proxyObjects, proxyBytes := alloctest.PerCall(calls, func() { cost.proxy(t) })
			if more := gatewayObjects - proxyObjects; more > tt.objects {
				t.Errorf("a call allocates %.0f objects more than by a bare ReverseProxy, want at most %.0f", more, tt.objects)
			}
			if gatewayBytes > proxyBytes*tt.bytes {
				t.Errorf("a call allocates %.0f bytes, want at most %.2f of a bare ReverseProxy's %.0f", gatewayBytes, tt.bytes,
					proxyBytes)
			}
		})
	}
}
