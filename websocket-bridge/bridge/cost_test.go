package bridge

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
)

// callCost compares a gateway with a bare httputil.ReverseProxy, the minimum for any gateway.
type callCost struct{ gateway, proxy func(tb testing.TB) }

// newCallCost returns functions that each GET a small object over a connection of their own.
func newCallCost(tb testing.TB) callCost {
	tb.Helper()
	object := strings.Repeat("x", 1000)
	member := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, object)
	}
	fresh := cluster.Freshness{Object: time.Minute, Secret: time.Minute}
	hs := serveFresh(tb, Limits{}, Drain{}, fresh, member)
	u, err := url.Parse(clustertest.NewStreamingMember(tb, member).URL)
	if err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, FlushInterval: -1,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true,
		},
	})
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	tb.Cleanup(srv.Close)
	toProxy := hs.tls("alice")
	toProxy.InsecureSkipVerify = true
	const path = "/api/v1/namespaces/default"
	return callCost{
		gateway: getter(tb, hs.tls("alice"), "https://"+hs.addr+"/clusters/m"+path),
		proxy:   getter(tb, toProxy, srv.URL+path),
	}
}

func getter(tb testing.TB, cfg *tls.Config, target string) func(testing.TB) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	tb.Cleanup(client.CloseIdleConnections)
	return func(tb testing.TB) {
		resp, err := client.Get(target)
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
	cost := newCallCost(b)
	for name, call := range map[string]func(testing.TB){"gateway": cost.gateway, "ReverseProxy": cost.proxy} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call(b)
			}
		})
	}
}

// TestCallAllocations: a request would become slower unnoticed. The limits are a third above the figures of this
// version: 44 objects more than a bare ReverseProxy, and less than half of its bytes.
func TestCallAllocations(t *testing.T) {
	const (
		calls      = 200
		maxObjects = 60 // more than the proxy's
	)
	cost := newCallCost(t)
	gatewayObjects, gatewayBytes := alloctest.PerCall(calls, func() { cost.gateway(t) })
	proxyObjects, proxyBytes := alloctest.PerCall(calls, func() { cost.proxy(t) })
	if more := gatewayObjects - proxyObjects; more > maxObjects {
		t.Errorf("a call allocates %.0f objects more than by a bare ReverseProxy, want at most %d", more, maxObjects)
	}
	if gatewayBytes > proxyBytes*2/3 {
		t.Errorf("a call allocates %.0f bytes, want at most two thirds of a bare ReverseProxy's %.0f", gatewayBytes,
			proxyBytes)
	}
}
