package server

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

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
)

// BenchmarkCall measures a GET of a small object: CPU and allocations of client, gateway and member together. The bare
// httputil.ReverseProxy beside it is the minimum for any gateway.
func BenchmarkCall(b *testing.B) {
	object := strings.Repeat("x", 1000)
	member := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, object)
	}
	fresh := cluster.Freshness{Object: time.Minute, Secret: time.Minute}
	hs := serveFresh(b, Limits{}, Drain{}, fresh, member)
	b.Run("gateway", func(b *testing.B) {
		get(b, hs.tls("alice"), "https://"+hs.addr+"/clusters/m/api/v1/namespaces/default")
	})
	b.Run("ReverseProxy", func(b *testing.B) {
		m := clustertest.NewStreamingMember(b, member)
		u, err := url.Parse(m.URL)
		if err != nil {
			b.Fatal(err)
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
		b.Cleanup(srv.Close)
		cfg := hs.tls("alice")
		cfg.InsecureSkipVerify = true
		get(b, cfg, srv.URL+"/api/v1/namespaces/default")
	})
}

// get sends requests over one connection.
func get(b *testing.B, cfg *tls.Config, target string) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		resp, err := client.Get(target)
		if err != nil {
			b.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if closeErr := resp.Body.Close(); err != nil || closeErr != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(err, closeErr, resp.Status)
		}
	}
}
