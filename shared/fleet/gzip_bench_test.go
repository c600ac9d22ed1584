package fleet_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/time/rate"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// slowConn is a connection whose reads have a limited rate.
type slowConn struct {
	net.Conn
	limiter *rate.Limiter
}

func newSlowConn(c net.Conn, bytesPerSecond int) slowConn {
	return slowConn{c, rate.NewLimiter(rate.Limit(bytesPerSecond), slowRead)}
}

const slowRead = 16 << 10

func (c slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), slowRead)])
	return n, errors.Join(err, c.limiter.WaitN(context.Background(), n))
}

// podsLike returns a list that compresses like one of pods: to a seventh or so.
func podsLike(size int) string {
	var b strings.Builder
	random := rand.New(rand.NewPCG(1, 2)) // the same text in each run
	b.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&b, `{"metadata":{"namespace":"shop","name":"web-%x","uid":"%x-%x","labels":{"app":"web"}},`+
			`"spec":`, random.Uint64(), random.Uint64(), random.Uint64())
		_, _ = fmt.Fprintf(&b, `{"containers":[{"name":"web","image":"registry.example.com/web@sha256:%x%x","resources":{`+
			`"requests":{"cpu":"100m","memory":"%dMi"}},"terminationMessagePath":"/dev/termination-log"}],"nodeName":"n%d",`+
			`"serviceAccountName":"web","schedulerName":"default-scheduler"},"status":{"phase":"Running","podIP":"10.0.%d.%d"}}`,
			random.Uint64(), random.Uint64(), random.IntN(900), random.IntN(50), random.IntN(250), random.IntN(250))
	}
	b.WriteString("]}")
	return b.String()
}

// BenchmarkListOverNetworks compares the fleet's lists with those of one cluster, by the client's bandwidth.
func BenchmarkListOverNetworks(b *testing.B) {
	body := podsLike(6 << 20)
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			_, _ = io.WriteString(w, body)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // as kube-apiserver
		_, _ = io.WriteString(z, body)
		_ = z.Close()
	}
	h := newGateway(b, gatewaytest.Options{Configure: func(c *gateway.Config) { c.Source = limits.ForwardedSource }})
	direct := clustertest.NewMember(b, handler)
	h.AddCluster("a", direct.Kubeconfig(`{token: t}`))
	h.AddRegistry("pods", allPods)
	for _, mbits := range []int{10, 100, 0} {
		for _, encoding := range []string{"gzip", "identity"} {
			for name, url := range map[string]string{"direct": direct.URL, "fleet": h.URL + "/fleet"} {
				b.Run(fmt.Sprintf("Mbits=%d/%s/%s", mbits, encoding, name), func(b *testing.B) {
					cfg := h.ClientTLS.Clone()
					cfg.InsecureSkipVerify = true
					client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true,
						DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
							c, err := (&net.Dialer{}).DialContext(ctx, network, address)
							if mbits > 0 && err == nil {
								c = newSlowConn(c, mbits*1_000_000/8)
							}
							return c, err
						}}}
					defer client.CloseIdleConnections()
					source := "203.0.113.9"
					if mbits == 0 {
						source = "127.0.0.1"
					}
					for b.Loop() {
						req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url+"/api/v1/pods", nil)
						if err != nil {
							b.Fatal(err)
						}
						req.Header = http.Header{"Accept-Encoding": {encoding}, "X-Forwarded-For": {source}}
						resp, err := client.Do(req)
						if err != nil {
							b.Fatal(err)
						}
						n, err := io.Copy(io.Discard, resp.Body)
						if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
							b.Fatal(err, resp.Status)
						}
						b.SetBytes(int64(len(body)))
						b.ReportMetric(float64(n)/1e6, "MB-sent")
					}
				})
			}
		}
	}
}
