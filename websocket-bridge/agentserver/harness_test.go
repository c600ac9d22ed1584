package agentserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/metrictest"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/agenttest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const gatewayURL = "https://gateway.example.com"

// world has the gateway's stores, the API server of a private cluster, and the network between them.
type world struct {
	*clustertest.Installation
	t      *testing.T
	issuer *passes.Issuer
	keys   *passes.Verifier
	api    *httptest.Server
	front  *balancer // the address that agents dial
	log    *slog.Logger
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Installation: clustertest.NewInstallation(t), t: t, log: slog.New(slog.DiscardHandler), front: newBalancer(t),
	}
	w.issuer = &passes.Issuer{Objects: w.Objects, Secrets: w.Secrets, URL: gatewayURL, Now: w.Clock.Now}
	w.keys = passes.NewVerifier(passes.Config{
		Objects: w.Objects, Secrets: w.Secrets, URL: gatewayURL, Log: w.log, Now: w.Clock.Now,
	})
	w.api = apiServer(t)
	return w
}

func apiServer(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "v1") })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Body.Read(buf)
			if _, werr := w.Write(buf[:n]); err != nil || werr != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for buf := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
	})
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv
}

type replica struct {
	*agentserver.Agents
	metrics *prometheus.Registry
	front   *httptest.Server
	port    string // address of the tunnel port
	stop    func() // as if killed
}

func (w *world) replica(configure ...func(*agentserver.Config)) *replica {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.replicaAt(ln, configure...)
}

func (w *world) pair() (here, there *replica) {
	w.t.Helper()
	lns, peers := make([]net.Listener, 2), agentserver.Peers{}
	for i := range lns {
		var err error
		if lns[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			w.t.Fatal(err)
		}
		peers = append(peers, lns[i].Addr().String())
	}
	know := func(c *agentserver.Config) { c.Peers = peers }
	return w.replicaAt(lns[0], know), w.replicaAt(lns[1], know)
}

func (w *world) replicaAt(ln net.Listener, configure ...func(*agentserver.Config)) *replica {
	w.t.Helper()
	cfg := agentserver.Config{
		Issuer: w.issuer, Verifier: w.keys, Recheck: 200 * time.Millisecond, Log: w.log, Metrics: prometheus.NewRegistry(),
	}
	for _, fn := range configure {
		fn(&cfg)
	}
	r := &replica{Agents: agentserver.New(cfg), metrics: cfg.Metrics.(*prometheus.Registry), port: ln.Addr().String()}
	r.front = httptest.NewUnstartedServer(r.Handler(http.NotFoundHandler()))
	r.front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	r.front.StartTLS()
	w.front.add(r.front.Listener.Addr().String())
	port := r.Listen(ln)
	r.stop = sync.OnceFunc(func() {
		w.front.remove(r.front.Listener.Addr().String())
		_ = port.Close()
		r.Close()
		r.front.CloseClientConnections()
		r.front.Close()
	})
	w.t.Cleanup(r.stop)
	return r
}

// connects waits until n agents are connected to the replica. The agents consider themselves connected a moment
// earlier.
func (r *replica) connects(t *testing.T, n int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d agents are connected", n), func() bool {
		return metrictest.Gauge(t, r.metrics, "clusterpass_agents") == n
	})
}

// enrol registers a private cluster and returns its agents' credential, which is bound to a key.
func (w *world) enrol(name string, ttl time.Duration) possession.Credential {
	w.t.Helper()
	return w.exchange(name, possession.Credential{Token: w.bootstrap(name, ttl)})
}

// exchange returns the next credential for c, as an agent obtains it.
func (w *world) exchange(cluster string, c possession.Credential, edits ...func(*passes.Agent)) possession.Credential {
	w.t.Helper()
	next, err := agenttest.Gateway{Issuer: w.issuer, Verifier: w.keys}.Exchange(w.t.Context(), cluster, c, edits...)
	if err != nil {
		w.t.Fatal(err)
	}
	return next
}

func (w *world) request(cluster string) (*possession.Key, string) {
	w.t.Helper()
	key, err := possession.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	request, err := key.Request(cluster)
	if err != nil {
		w.t.Fatal(err)
	}
	return key, request
}

// present returns c as the bridge receives it now.
func (w *world) present(c possession.Credential, use possession.Use, request string) passes.AgentAuth {
	w.t.Helper()
	p, err := agenttest.Present(c, use, request, w.Clock.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) header(c possession.Credential, use possession.Use, request string) http.Header {
	w.t.Helper()
	h, err := c.Header(use, request, w.Clock.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// bootstrap registers a private cluster and returns the credential that clusterpass cluster join --pull prints.
func (w *world) bootstrap(name string, ttl time.Duration) secrets.Value {
	w.t.Helper()
	c := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)},
		Spec:       v1alpha1.ClusterSpec{SyncMode: v1alpha1.Pull},
	}
	value, err := json.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Create(v1alpha1.Prefix+name, string(value))
	token, err := w.issuer.EnrolAgent(w.t.Context(), c, ttl)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

type agent struct {
	*links.Keeper
	metrics *prometheus.Registry
	stop    func() // drains it
}

func (w *world) agent(
	cluster string, c possession.Credential, address string, configure ...func(*links.Config),
) *agent {
	w.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(w.api.Certificate()) // all test servers have the same certificate
	reg := prometheus.NewRegistry()
	cfg := links.Config{
		Gateway: "https://" + address, Cluster: cluster, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		Credential: func(context.Context) (possession.Credential, error) { return c, nil }, Now: w.Clock.Now,
		Target: &target.APIServer{Cluster: cluster, Address: w.api.Listener.Addr().String()}, Log: w.log, Metrics: reg,
	}
	for _, fn := range configure {
		fn(&cfg)
	}
	a := &agent{Keeper: links.New(cfg), metrics: reg}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	a.stop = func() { cancel(); <-done }
	w.t.Cleanup(a.stop)
	return a
}

// carries returns the number of the agent's open connections.
func (a *agent) carries(t *testing.T) int {
	return metrictest.Gauge(t, a.metrics, "clusterpass_agent_streams")
}

// client calls the API server of a cluster through a tunnel port, with a connection for each request.
func (w *world) client(cluster, port string) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(w.api.Certificate())
	d := &tunnel.Dialer{Verifier: w.keys}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.Dial(ctx, cluster, "", &url.URL{Scheme: "https", Host: port}, (&net.Dialer{}).DialContext)
		},
	}}
}

func (w *world) version(c *http.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.api.URL+"/version", nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "v1" {
		return fmt.Errorf("%s %q %w", resp.Status, body, err)
	}
	return nil
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// tlsClient accepts every certificate. It is for clients that must not be able to use the port.
func tlsClient(conn net.Conn) *tls.Conn {
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
}
