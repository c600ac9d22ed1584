package main

import (
	"cmp"
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
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/agenttest"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

const (
	privateCalls = 2000
	bulkRounds   = 3 // interleaved, which spreads noise of the machine over both dialers
	bulkWarm     = time.Second
	bulkTime     = 2 * time.Second
	bulkChunk    = 64 << 10 // bytes
	copyPath     = "/copy"  // the stand-in writes without end here, without HTTP framing
	idleAgents   = 1000
	perCluster   = 10 // agents
)

// private measures the overhead of a private cluster's tunnel. The API server is a cheap stand-in. It shares this
// process and its cores with agent, bridge and client.
func private(ctx context.Context, out *report, _ *cluster.Set, dir string) error {
	if err := tunnelSpeed(ctx, out, filepath.Join(dir, "private")); err != nil {
		return err
	}
	return agentMemory(ctx, out, filepath.Join(dir, "agents"))
}

func tunnelSpeed(ctx context.Context, out io.Writer, data string) error {
	api := startCopyServer()
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
	bridge := agentserver.New(agentserver.Config{
		Issuer: issuer, Verifier: keys, Log: log, Metrics: prometheus.NewRegistry(),
	})
	defer bridge.Close()
	front := httptest.NewTLSServer(bridge.Handler(http.NotFoundHandler()))
	defer front.Close()
	defer bridge.Close() // before front.Close, which waits for the agents
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
	credential, err := agenttest.Gateway{Issuer: issuer, Verifier: keys}.Enrol(ctx, c, passes.MaxTTL)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(api.Certificate()) // all test servers have this certificate
	link := &agentLink{}
	gateway, member := "https://"+front.Listener.Addr().String(), api.Listener.Addr().String()
	agent, stop := runAgents(ctx, 1, gateway, "bench", roots, credential, member, link.dial)
	defer stop()

	dialTunnel := dialer(keys, ln.Addr().String())
	direct, viaTunnel := client(roots, nil), client(roots, dialTunnel)
	defer direct.CloseIdleConnections()
	defer viaTunnel.CloseIdleConnections()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = timed(ctx, viaTunnel, api.URL); err == nil {
			break
		} else if time.Now().After(deadline) {
			return err
		}
	}
	times, err := compareLatency(ctx, direct, viaTunnel, api.URL)
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\na private cluster\tdirect\tthrough the tunnel\tadded, or share\t")
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		a, b := times[0][int(q.of*privateCalls)], times[1][int(q.of*privateCalls)]
		_, _ = fmt.Fprintf(tw, "one call at a time, %s\t%s\t%s\t%s\t\n", q.name, a.Round(time.Microsecond),
			b.Round(time.Microsecond), (b - a).Round(time.Microsecond))
	}
	if err := compareThroughput(ctx, tw, api.Listener.Addr().String(), roots, dialTunnel); err != nil {
		return err
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	outages, err := link.measureReconnects(agent[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nan agent that is cut is connected again after %s, p50, and %s at most, of %d cuts\n",
		at(outages, 0.5).Round(time.Millisecond), at(outages, 1).Round(time.Millisecond), len(outages))
	return err
}

// compareLatency makes calls with both clients, interleaved. It returns the sorted times of each.
func compareLatency(ctx context.Context, direct, viaTunnel *http.Client, url string) (times [2][]time.Duration,
	err error) {
	for range privateCalls {
		for i, c := range []*http.Client{direct, viaTunnel} {
			d, err := timed(ctx, c, url)
			if err != nil {
				return times, err
			}
			times[i] = append(times[i], d)
		}
	}
	for _, t := range times {
		slices.Sort(t)
	}
	return times, nil
}

// startCopyServer starts a server with short responses, and endless data at copyPath.
func startCopyServer() *httptest.Server {
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != copyPath {
			_, _ = io.WriteString(w, "{}")
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for buf := make([]byte, bulkChunk); err == nil; {
			_, err = conn.Write(buf)
		}
	}))
}

// compareThroughput measures copies directly and through the tunnel, and writes a row for each number of streams.
func compareThroughput(ctx context.Context, tw io.Writer, address string, roots *x509.CertPool,
	dialTunnel dialFunc) error {
	tlsConfig := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"}
	for _, n := range []int{1, 50} {
		var rate [2]float64
		for range bulkRounds {
			for i, dial := range []dialFunc{(&net.Dialer{}).DialContext, dialTunnel} {
				r, err := bulk(ctx, dial, address, tlsConfig, n)
				if err != nil {
					return err
				}
				rate[i] += r / bulkRounds
			}
		}
		_, _ = fmt.Fprintf(tw, "MB/s of a TLS copy, streams: %d\t%.0f\t%.0f\t%.0f %%\t\n", n, rate[0]/1e6, rate[1]/1e6,
			100*rate[1]/rate[0])
	}
	return nil
}

// agentLink dials the bridge for an agent, and can cut its connection.
type agentLink struct {
	conn  atomic.Pointer[net.Conn]
	dials atomic.Int64
}

func (r *agentLink) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		r.conn.Store(&conn)
		r.dials.Add(1)
	}
	return conn, err
}

// measureReconnects cuts a connected agent repeatedly. It returns the sorted times until its next connection.
func (r *agentLink) measureReconnects(agent *links.Keeper) ([]time.Duration, error) {
	var outages []time.Duration
	for range 20 {
		start, dials := time.Now(), r.dials.Load()
		_ = (*r.conn.Load()).Close()
		for r.dials.Load() == dials || agent.Links() == 0 { // the agent dials after it detects the cut
			if time.Since(start) > time.Minute {
				return nil, errors.New("an agent that was cut does not come back")
			}
			time.Sleep(time.Millisecond)
		}
		outages = append(outages, time.Since(start))
	}
	slices.Sort(outages)
	return outages, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func dialer(keys *passes.Verifier, port string) dialFunc {
	d := &tunnel.Dialer{Verifier: keys}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.Dial(ctx, "bench", "", &url.URL{Scheme: "https", Host: port}, (&net.Dialer{}).DialContext)
	}
}

// client returns a client with HTTP/1.1 only, so that each stream is a connection.
func client(roots *x509.CertPool, dial dialFunc) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, ReadBufferSize: 64 << 10,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
}

func timed(ctx context.Context, c *http.Client, url string) (time.Duration, error) {
	start := time.Now()
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
	return time.Since(start), err
}

// bulk returns the bytes a second that n TLS connections receive together from the stand-in.
func bulk(ctx context.Context, dial dialFunc, address string, cfg *tls.Config, n int) (float64, error) {
	var conns []*tls.Conn
	defer func() {
		for _, c := range conns {
			_ = c.NetConn().Close()
		}
	}()
	for range n {
		raw, err := dial(ctx, "tcp", address)
		if err != nil {
			return 0, err
		}
		conn := tls.Client(raw, cfg)
		conns = append(conns, conn)
		if err := conn.HandshakeContext(ctx); err != nil {
			return 0, err
		}
	}
	var total atomic.Int64
	var group errgroup.Group
	end := time.Now().Add(bulkWarm + bulkTime)
	for _, conn := range conns {
		group.Go(func() error {
			if err := conn.SetDeadline(end); err != nil {
				return err
			}
			if _, err := io.WriteString(conn, "GET "+copyPath+" HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
				return err
			}
			_, err := io.CopyBuffer(counter{&total}, conn, make([]byte, bulkChunk))
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return cmp.Or(err, io.ErrUnexpectedEOF)
		})
	}
	time.Sleep(bulkWarm) // until all flow-control windows are full
	before, start := total.Load(), time.Now()
	err := group.Wait()
	return float64(total.Load()-before) / time.Since(start).Seconds(), err
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

func addPrivate(ctx context.Context, st *stores.Stores, name string) (*v1alpha1.Cluster, error) {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1alpha1.ClusterSpec{SyncMode: v1alpha1.Pull}}
	value, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	_, err = st.Objects.Create(ctx, v1alpha1.Prefix+name, value)
	return c, err
}

// runAgents runs n agents of a cluster until stop. They connect to the gateway by dial, or directly if it is nil.
func runAgents(
	ctx context.Context, n int, gateway, name string, roots *x509.CertPool, credential possession.Credential, api string,
	dial dialFunc,
) (all []*links.Keeper, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range n {
		k := links.New(links.Config{
			Gateway: gateway, Cluster: name, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Dial: dial,
			Credential: func(context.Context) (possession.Credential, error) { return credential, nil },
			Target:     &target.APIServer{Cluster: name, Address: api}, Log: slog.New(slog.DiscardHandler),
			Metrics: prometheus.NewRegistry(),
		})
		all = append(all, k)
		wg.Go(func() { k.Run(ctx) })
	}
	return all, func() { cancel(); wg.Wait() }
}

// agentMemory measures the memory and CPU of the bridge for agents with idle tunnels.
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
	defer interrupt(process)
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
	keys := passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: gw.URL})
	var all []*links.Keeper
	for _, c := range clusters {
		credential, err := agenttest.Gateway{Issuer: issuer, Verifier: keys}.Enrol(ctx, c, passes.MaxTTL)
		if err != nil {
			return err
		}
		some, stop := runAgents(ctx, perCluster, gw.URL, c.Name, roots, credential, "127.0.0.1:1", nil)
		defer stop()
		all = append(all, some...)
	}
	connected := func() (n int) {
		for _, k := range all {
			n += k.Links()
		}
		return n
	}
	for deadline := time.Now().Add(2 * time.Minute); connected() < idleAgents && time.Now().Before(deadline) &&
		ctx.Err() == nil; {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(5 * time.Second) // until the work of connecting is done
	cpu, err := cpuOver(ctx, process.Process.Pid, idleTime)
	if err != nil {
		return err
	}
	after, err := rss(process.Process.Pid)
	if err != nil {
		return err
	}
	if n := connected(); n != idleAgents { // the bridge closes the tunnels of agents that it refuses
		return fmt.Errorf("%d of %d agents are connected", n, idleAgents)
	}
	_, err = fmt.Fprintf(out, "\n%d idle agents: %d MiB more in the bridge, %d KiB each, %.1f %% of a core\n", idleAgents,
		(after-before)/1024, (after-before)/idleAgents, 100*cpu)
	return err
}
