package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
	"github.com/clusterpass/clusterpass/websocket-bridge/agents"
)

const (
	privateCalls = 2000
	bulkTime     = 3 * time.Second
	idleAgents   = 1000
	perCluster   = 10 // agents
)

// private measures what the tunnel of a private cluster adds. The API server is a stand-in that costs little; it, agent, bridge and client
// share this process and its cores.
func private(ctx context.Context, out io.Writer, _ *cluster.Set, dir string) error {
	if err := tunnelSpeed(ctx, out, filepath.Join(dir, "private")); err != nil {
		return err
	}
	return agentMemory(ctx, out, filepath.Join(dir, "agents"))
}

func tunnelSpeed(ctx context.Context, out io.Writer, data string) error {
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/bulk" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		for buf := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
	}))
	defer api.Close()
	defer api.CloseClientConnections()
	st, err := stores.Open(ctx, stores.Address{Kind: "dir", Where: data})
	if err != nil {
		return err
	}
	const url = "https://gateway.example.com"
	log := slog.New(slog.DiscardHandler)
	issuer := &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: url}
	keys := passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: url, Log: log})
	bridge := agents.New(agents.Config{Issuer: issuer, Keys: keys, Log: log, Metrics: prometheus.NewRegistry()})
	defer bridge.Close()
	front := httptest.NewTLSServer(bridge.Handler(http.NotFoundHandler()))
	defer front.Close()
	defer bridge.Close() // before the front, which would wait for its agents
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := bridge.Listen(ln)
	defer func() { _ = port.Close() }()
	c, err := addPrivate(ctx, st, "bench")
	if err != nil {
		return err
	}
	token, err := issuer.EnrolAgent(ctx, c, passes.MaxTTL)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(api.Certificate()) // every test server's
	stop := runAgents(ctx, 1, "https://"+front.Listener.Addr().String(), "bench", roots, token, api.Listener.Addr().String())
	defer stop()

	direct, through := client(roots, nil), client(roots, dialer(keys, ln.Addr().String()))
	defer direct.CloseIdleConnections()
	defer through.CloseIdleConnections()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = timed(ctx, through, api.URL); err == nil {
			break
		} else if time.Now().After(deadline) {
			return err
		}
	}
	var times [2][]time.Duration
	for range privateCalls {
		for i, c := range []*http.Client{direct, through} {
			d, err := timed(ctx, c, api.URL)
			if err != nil {
				return err
			}
			times[i] = append(times[i], d)
		}
	}
	for _, t := range times {
		slices.Sort(t)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\na private cluster\tdirect\tthrough the tunnel\tadded, or share\t")
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		a, b := times[0][int(q.of*privateCalls)], times[1][int(q.of*privateCalls)]
		_, _ = fmt.Fprintf(tw, "one call at a time, %s\t%s\t%s\t%s\t\n", q.name, a.Round(time.Microsecond), b.Round(time.Microsecond), (b - a).Round(time.Microsecond))
	}
	for _, n := range []int{1, 50} {
		var rate [2]float64
		for i, c := range []*http.Client{direct, through} {
			if rate[i], err = bulk(ctx, c, api.URL+"/bulk", n); err != nil {
				return err
			}
		}
		_, _ = fmt.Fprintf(tw, "MB/s of %d streams\t%.0f\t%.0f\t%.0f %%\t\n", n, rate[0]/1e6, rate[1]/1e6, 100*rate[1]/rate[0])
	}
	return tw.Flush()
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func dialer(keys *passes.Verifier, port string) dialFunc {
	d := &tunnel.Dialer{Keys: keys}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.Dial(ctx, "bench", "", &url.URL{Scheme: "https", Host: port}, (&net.Dialer{}).DialContext)
	}
}

// client speaks HTTP/1.1, so that each stream is a connection.
func client(roots *x509.CertPool, dial dialFunc) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, ReadBufferSize: 64 << 10,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
}

func timed(ctx context.Context, c *http.Client, url string) (time.Duration, error) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return time.Since(began), err
}

// bulk is how many bytes a second n streams bring.
func bulk(ctx context.Context, c *http.Client, url string, n int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	var (
		total  atomic.Int64
		failed atomic.Value
		wg     sync.WaitGroup
	)
	for range n {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err == nil {
				var resp *http.Response
				if resp, err = c.Do(req); err == nil {
					defer func() { _ = resp.Body.Close() }()
					buf := make([]byte, 64<<10)
					for err == nil {
						var read int
						read, err = resp.Body.Read(buf)
						total.Add(int64(read))
					}
				}
			}
			if ctx.Err() == nil {
				failed.Store(err)
			}
		})
	}
	wg.Wait()
	if err, ok := failed.Load().(error); ok {
		return 0, err
	}
	return float64(total.Load()) / bulkTime.Seconds(), nil
}

func addPrivate(ctx context.Context, st *stores.Stores, name string) (*v1alpha1.Cluster, error) {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.ClusterSpec{SyncMode: v1alpha1.Pull}}
	value, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	_, err = st.Objects.Create(ctx, v1alpha1.Prefix+name, value)
	return c, err
}

// runAgents runs n agents of a cluster until stop.
func runAgents(ctx context.Context, n int, gateway, name string, roots *x509.CertPool, token secrets.Value, api string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range n {
		k := links.New(links.Config{
			Gateway: gateway, Cluster: name, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Token: func() secrets.Value { return token },
			Target: &target.APIServer{Cluster: name, Address: api}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		})
		wg.Go(func() { k.Run(ctx) })
	}
	return func() { cancel(); wg.Wait() }
}

// agentMemory measures what agents cost the bridge while nothing happens in their tunnels.
func agentMemory(ctx context.Context, out io.Writer, data string) (err error) {
	st, err := stores.Open(ctx, stores.Address{Kind: "dir", Where: data})
	if err != nil {
		return err
	}
	var clusters []*v1alpha1.Cluster
	for i := range idleAgents / perCluster {
		c, err := addPrivate(ctx, st, fmt.Sprint("idle-", i))
		if err != nil {
			return err
		}
		clusters = append(clusters, c)
	}
	process, _, err := startProcess(ctx, data)
	if err != nil {
		return err
	}
	defer func() { _ = process.Process.Signal(os.Interrupt); _ = process.Wait() }()
	gw, err := kubeconfig.Read(filepath.Join(data, "pass"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(gw.CA) {
		return errors.New("the gateway's kubeconfig has no CA")
	}
	before, err := rss(process.Process.Pid)
	if err != nil {
		return err
	}
	issuer := &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gw.URL}
	for _, c := range clusters {
		token, err := issuer.EnrolAgent(ctx, c, passes.MaxTTL)
		if err != nil {
			return err
		}
		defer runAgents(ctx, perCluster, gw.URL, c.Name, roots, token, "127.0.0.1:1")()
	}
	time.Sleep(10 * time.Second) // they connect within one
	cpu, err := cpuOver(ctx, process.Process.Pid, idleTime)
	if err != nil {
		return err
	}
	after, err := rss(process.Process.Pid)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%d idle agents: %d MB more in the bridge, %d KB each, %.1f %% of a core\n", idleAgents, (after-before)/1024, (after-before)/idleAgents, 100*cpu)
	return err
}
