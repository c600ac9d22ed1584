// Package agentserver is the bridge's side of private clusters: the endpoint for agents, and the tunnel port for other
// parts of the gateway. docs/explanation/agent-credentials.md explains how agents' credentials are renewed and ended.
//
// Invariants:
//   - An agent's credential authenticates agents of one cluster, and no callers. A caller's credential authenticates no
//     agents.
//   - Every Config.Recheck, the bridge checks each agent's credential. It closes the tunnel if the credential is
//     invalid or cannot be checked. Enrolment and Cluster are at most passes.MaxAge old. Published keys may be older
//     while they cannot be read.
//   - An agent proves that it has the key to which its credential is bound.
//   - If an agent uses a replaced credential, all credentials of the cluster's agents end. For exceptions, see
//     passes.Verifier.AuthenticateAgent and passes.Issuer.RenewAgent.
//   - The tunnel port requires a token of the gateway for one cluster, valid for a minute.
//   - API requests in a tunnel are TLS between the component that dialed and the member's API server. So agents cannot
//     decrypt them, nor can a bridge that carries them for another component.
//   - A replica never forwards a CONNECT that another replica has forwarded.
package agentserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

// Config configures Agents.
type Config struct {
	Issuer   *passes.Issuer   // renews agents' credentials, and ends them if a replaced one was used
	Verifier *passes.Verifier // verifies agents' credentials, and tokens at the tunnel port
	Peers    Peers            // tunnel ports of all replicas, including this one; empty for one replica
	// Lookup returns the addresses of a host. nil means net.DefaultResolver.LookupHost.
	Lookup  func(ctx context.Context, host string) ([]string, error)
	Max     int           // maximum number of agents of this replica; 0 means 5000
	Recheck time.Duration // interval at which agents' credentials are checked; 0 means 2 s
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Agents manages the tunnels of private clusters. It is safe for concurrent use. Call Close when done.
type Agents struct {
	cfg      Config
	id       string // of this replica
	registry *registry
	upgrader *websocket.Upgrader
	hops     *tunnel.Dialer
	connects *prometheus.CounterVec
	reuses   prometheus.Counter
	audit    atomic.Pointer[audit.Log]

	refused *limits.Combiner[refusal] // limits the log lines of refused requests; a summary counts the others

	carried  atomic.Int64 // requests and connections at the tunnel port
	renewing atomic.Bool  // agents are being asked for newer credentials

	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	replicas int
	draining bool
}

// New returns Agents without tunnels. Its goroutines run until Close.
func New(cfg Config) *Agents {
	if cfg.Max == 0 {
		cfg.Max = 5000
	}
	if cfg.Recheck == 0 {
		cfg.Recheck = 2 * time.Second
	}
	if cfg.Lookup == nil {
		cfg.Lookup = net.DefaultResolver.LookupHost
	}
	a := &Agents{
		cfg: cfg, id: uuid.NewString(), upgrader: mux.NewUpgrader(), replicas: 1,
		hops:     &tunnel.Dialer{Verifier: cfg.Verifier},
		registry: &registry{max: cfg.Max, byCluster: map[string][]*session{}},
	}
	a.refused = limits.NewCombiner[refusal](0, func() { a.logRefusals(0) })
	a.connects = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "clusterpass_tunnel_connects_total",
		Help: "Requested connections to private clusters, by result."}, []string{"result"})
	a.reuses = prometheus.NewCounter(prometheus.CounterOpts{Name: ReusesMetric,
		Help: "Refused uses of agents' credentials that were replaced. In most cases, another party has a copy."})
	cfg.Metrics.MustRegister(a.connects, a.reuses, agentCounts{a.registry},
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "clusterpass_agents", Help: "Agents of private clusters that are connected to this replica.",
			},
			func() float64 { return float64(a.registry.size()) }),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "clusterpass_tunnel_streams",
				Help: "Open connections to private clusters, including those that are being opened.",
			},
			func() float64 { return float64(a.registry.streams.Load()) }),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "clusterpass_tunnel_carried",
				Help: "Requests and connections at the tunnel port, including requests that are refused.",
			},
			func() float64 { return float64(a.carried.Load()) }))
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.wg.Go(func() { a.every(ctx, cfg.Recheck, a.recheck) })
	if len(cfg.Peers) > 0 {
		a.wg.Go(func() { a.every(ctx, lookupInterval, a.countReplicas) })
	}
	return a
}

const lookupInterval = 5 * time.Second

func (a *Agents) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	do(ctx)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(ctx)
		}
	}
}

func (a *Agents) countReplicas(ctx context.Context) {
	n := len(a.cfg.Peers.addresses(ctx, a.cfg.Lookup))
	if n == 0 {
		return // the lookup failed
	}
	a.mu.Lock()
	changed := a.replicas != n
	a.replicas = n
	a.mu.Unlock()
	if changed {
		a.announce(ctx)
	}
}

// Drain announces to the agents that this replica is shutting down. The agents connect to other replicas before their
// tunnels end.
func (a *Agents) Drain(ctx context.Context) {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	a.announce(ctx)
}

// Wait blocks until the tunnel port has no requests and connections, or until ctx ends.
func (a *Agents) Wait(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for a.carried.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close ends all tunnels.
func (a *Agents) Close() {
	a.stop()
	a.registry.close()
	a.wg.Wait()
	a.logRefusals(0)
}

func (a *Agents) announcement() Announcement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Announcement{Replicas: a.replicas, Draining: a.draining}
}

func (a *Agents) announce(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range a.registry.all() {
		wg.Go(func() { a.announceTo(ctx, s) })
	}
	wg.Wait()
}

func (a *Agents) announceTo(ctx context.Context, s *session) {
	body, err := json.Marshal(a.announcement())
	if err != nil {
		panic(err) // an Announcement always marshals
	}
	if _, err := s.call(ctx, http.MethodPut, AnnouncementPath, body); err != nil {
		a.cfg.Log.Debug("the announcement cannot be sent to an agent", "cluster", s.cluster, "error", err.Error())
	}
}

// Handler serves the requests of agents, and passes all others to next.
func (a *Agents) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.serveAgent(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// serveAgent serves a request to a path for agents, and returns false for any other path.
func (a *Agents) serveAgent(w http.ResponseWriter, r *http.Request) bool {
	cluster, tail, ok := route.ParseAgent(r.URL.EscapedPath())
	if !ok {
		return false
	}
	err := limitRequest(w, r, cluster)
	if err == nil {
		err = a.serve(w, r, cluster, tail)
	}
	if err != nil {
		a.logRefusal(r, cluster, status.Write(w, err))
	}
	return true
}

const (
	// writeTimeout is the time to write a response, which a client may delay by not reading it. bodyTimeout is the time to
	// read the rest of a refused body. A websocket has its own deadlines.
	writeTimeout = time.Minute
	bodyTimeout  = 5 * time.Second
)

// limitRequest limits how long a client may occupy the connection. It refuses a request with a body: agents send none.
func limitRequest(w http.ResponseWriter, r *http.Request, cluster string) error {
	if r.ContentLength == 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		return nil
	}
	closeAfterResponse(w)
	return status.New(status.BadRequest, cluster,
		"the request has a body: agents of cluster %q send none; send the request without it", cluster)
}

// closeAfterResponse makes the server close the connection, even if the client neither sends nor reads.
func closeAfterResponse(w http.ResponseWriter) {
	c := http.NewResponseController(w) // errors are ignored: some writers support no deadlines and need none
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout)) // the server still reads a part of the refused body
	w.Header().Set("Connection", "close")
}

func (a *Agents) serve(w http.ResponseWriter, r *http.Request, cluster, tail string) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return status.New(status.Unauthenticated, "",
			"the request has no bearer token: only agents may connect here; use the credential of the cluster's agents")
	}
	isRenewal := tail == route.AgentCredential && r.Method == http.MethodPost
	p := passes.AgentAuth{Token: token, Proof: r.Header.Get(possession.ProofHeader), Use: possession.Connect}
	if isRenewal {
		p.Use, p.CertificateRequest = possession.Renew, r.Header.Get(possession.RequestHeader)
	}
	agent, err := a.cfg.Verifier.AuthenticateAgent(r.Context(), cluster, p)
	if err == nil && isRenewal {
		err = a.sendRenewal(w, r, agent, p.CertificateRequest)
	}
	if err != nil {
		a.endIfReused(r, err)
		return err
	}
	switch {
	case isRenewal:
		return nil
	case tail == "" && websocket.IsWebSocketUpgrade(r):
		return a.connect(w, r, agent)
	}
	return status.New(status.BadRequest, cluster,
		"the path or method is wrong: agents of cluster %q connect by websocket, and renew by POST to %s", cluster,
		route.AgentPath(cluster)+route.AgentCredential)
}

func (a *Agents) connect(w http.ResponseWriter, r *http.Request, agent *passes.Agent) error {
	id, err := uuid.Parse(r.Header.Get(AgentHeader))
	if err != nil {
		return status.New(status.BadRequest, agent.Cluster, "the header %s is invalid: it must be the UUID of the agent",
			AgentHeader)
	}
	if strings.Contains(r.Header.Get(HaveHeader), a.id) && a.registry.has(agent.Cluster, id.String()) {
		w.Header().Set(ReplicaHeader, a.id)
		w.WriteHeader(http.StatusConflict) // not an error: the agent is connected to this replica
		return nil
	}
	announced := a.announcement()
	if announced.Draining {
		return status.New(status.Draining, agent.Cluster, "this bridge is shutting down; connect to another one")
	}
	if err := a.registry.checkCapacity(agent.Cluster, id.String()); err != nil {
		return err // agents back off after a failed handshake, but not after a lost tunnel
	}
	replicas := strconv.Itoa(announced.Replicas)
	ws, err := a.upgrader.Upgrade(w, r, http.Header{ReplicaHeader: {a.id}, ReplicasHeader: {replicas}})
	if err != nil {
		return nil //nolint:nilerr // the upgrader has responded
	}
	opener, err := mux.Opener(ws)
	if err != nil {
		return nil //nolint:nilerr // the agent is gone
	}
	defer func() { _ = opener.Close() }()
	s := &session{cluster: agent.Cluster, agent: id.String(), mux: opener, opening: r}
	s.credential.Store(agent)
	log := a.cfg.Log.With("cluster", s.cluster, "agent", s.agent)
	if err := a.registry.add(s); err != nil {
		log.Warn("an agent is refused", "error", err.Error())
		return nil
	}
	defer a.registry.remove(s)
	log.Info("an agent has connected", "remote", ws.RemoteAddr().String())
	if a.announcement() != announced { // changed since the response headers
		a.announceTo(r.Context(), s)
	}
	<-opener.CloseChan()
	log.Info("an agent's tunnel has ended", "streams", s.streams.Load())
	return nil
}

// Prepare implements cluster.Tunnel. Only connections to peers need keys.
func (a *Agents) Prepare(ctx context.Context) {
	if len(a.cfg.Peers) > 0 {
		a.hops.Prepare(ctx)
	}
}

// Dial implements cluster.Tunnel. It connects through an agent of this replica or a tunnel port of Config.Peers. If the
// path of the proxy URL names another cluster, it uses the agents of that cluster. It ignores the rest of the URL.
func (a *Agents) Dial(ctx context.Context, cluster, address string, proxy *url.URL,
	_ func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	conn, err := a.dial(ctx, tunnel.DestinationOf(cluster, address, proxy), true)
	var known *status.Error
	if errors.As(err, &known) {
		known.Cluster = cluster // the connection may go through the agents of another cluster
	}
	return conn, err
}

// dialTimeout limits one connection attempt, including all agents and peers.
const dialTimeout = 20 * time.Second

// dial connects through an agent of this replica. If that fails and mayHop is set, it connects through a peer.
func (a *Agents) dial(ctx context.Context, target tunnel.Destination, mayHop bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := a.registry.open(ctx, target)
	result := "here"
	if err != nil && mayHop && ctx.Err() == nil {
		if other, herr := a.hop(ctx, target); herr == nil || errors.Is(err, tunnel.ErrNone) {
			result, conn, err = "peer", other, herr
		}
	}
	if err != nil {
		err = explain(ctx, target.Cluster, err)
		var known *status.Error
		if result = "canceled"; errors.As(err, &known) {
			result = string(known.Reason)
		}
	}
	a.connects.WithLabelValues(result).Inc()
	return conn, err
}

// hop connects through a tunnel port in Config.Peers, which include this replica's own. Peers without an agent of the
// cluster fail at once.
func (a *Agents) hop(ctx context.Context, target tunnel.Destination) (net.Conn, error) {
	peers := a.cfg.Peers.addresses(ctx, a.cfg.Lookup)
	conn, errs := race(ctx, len(peers), func(ctx context.Context, i int) (net.Conn, error) {
		return a.tryPeer(ctx, target, peers[i])
	})
	switch {
	case conn != nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	err := tunnel.ErrNone
	for _, herr := range errs {
		var known *status.Error
		switch {
		case errors.Is(herr, tunnel.ErrRefused) || errors.As(herr, &known) && known.Reason == status.Timeout:
			err = herr
		// Any other error replaces ErrNone, because a peer that cannot be reached may have an agent.
		case herr != nil && !errors.Is(herr, tunnel.ErrNone) && errors.Is(err, tunnel.ErrNone):
			err = herr
		}
	}
	return nil, err
}

func (a *Agents) tryPeer(ctx context.Context, target tunnel.Destination, peer string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return a.hops.Hop(ctx, target, peer)
}

func explain(ctx context.Context, cluster string, err error) error {
	var known *status.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.As(err, &known):
		return known
	case errors.Is(err, tunnel.ErrNone):
		return &status.Error{Reason: status.Unreachable, Cluster: cluster, Err: err,
			Message: fmt.Sprintf(
				"cluster %q is private, and none of its agents is connected; inspect them in that cluster: "+
					"kubectl -n clusterpass-system get pods", cluster)}
	case errors.Is(err, context.DeadlineExceeded):
		return &status.Error{Reason: status.Timeout, Cluster: cluster, Err: err,
			Message: fmt.Sprintf("cluster %q is private, and none of its agents answers in time; try again", cluster)}
	}
	return &status.Error{Reason: status.Unreachable, Cluster: cluster, Err: err,
		Message: fmt.Sprintf("cluster %q is private, and the connection through its agent failed; try again", cluster)}
}
