// Package agents is the bridge's side of private clusters: the endpoint that their agents connect to, and the tunnel port, where
// the gateway's own parts connect to their API servers.
//
// Invariants:
//   - An agent has a credential that is good for one cluster and nothing else; no caller's credential makes an agent, and no agent's a
//     caller. An agent whose credential is revoked, has ended or was signed by a key that is gone loses its tunnel within a recheck.
//   - An agent proves that it has the key of its credential. Once two have used that key, all credentials of the
//     cluster's agents end.
//   - At the tunnel port only the gateway's own parts connect, by tokens that its keys signed for one cluster and a minute.
//   - What runs in a tunnel is TLS from the gateway's part to the member's API server. Neither bridge nor agent has the keys of it.
//   - A CONNECT for a cluster whose agents are connected to another replica is passed on, once.
package agents

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
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	carrier "github.com/clusterpass/clusterpass/websocket-bridge/tunnel"
)

// Config is what Agents are made of.
type Config struct {
	Issuer *passes.Issuer   // renews credentials
	Keys   *passes.Verifier // knows agents and the gateway's own parts
	Peers  Peers            // all replicas of the bridge, this one among them; none for one replica
	// Lookup returns the addresses of a host, as (*net.Resolver).LookupHost; nil asks the DNS.
	Lookup  func(ctx context.Context, host string) ([]string, error)
	Max     int           // agents in all; 0 means 5000
	Recheck time.Duration // how often it is looked at whether agents may still be connected; 0 means 10 s
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Agents holds the tunnels of private clusters. It is safe for concurrent use. Close it when done.
type Agents struct {
	cfg      Config
	id       string // of this replica
	registry *registry
	upgrader *websocket.Upgrader
	hops     *tunnel.Dialer
	connects *prometheus.CounterVec
	reuses   prometheus.Counter
	audit    atomic.Pointer[audit.Log]

	carried atomic.Int64 // connections at the tunnel port, from the CONNECT on
	asking  atomic.Bool  // agents are being asked for their credentials

	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	replicas int
	draining bool
}

// New returns Agents without any, which look after those that come until Close.
func New(cfg Config) *Agents {
	if cfg.Max == 0 {
		cfg.Max = 5000
	}
	if cfg.Recheck == 0 {
		cfg.Recheck = 10 * time.Second
	}
	if cfg.Lookup == nil {
		cfg.Lookup = net.DefaultResolver.LookupHost
	}
	a := &Agents{
		cfg: cfg, id: uuid.NewString(), upgrader: carrier.NewUpgrader(), hops: &tunnel.Dialer{Keys: cfg.Keys}, replicas: 1,
		registry: &registry{max: cfg.Max, byCluster: map[string][]*session{}},
	}
	a.connects = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "clusterpass_tunnel_connects_total",
		Help: "Connections to private clusters that were asked for, by how that ended."}, []string{"result"})
	a.reuses = prometheus.NewCounter(prometheus.CounterOpts{Name: "clusterpass_agent_credential_reuses_total",
		Help: "Uses of agents' credentials that had been renewed before: there is a copy."})
	cfg.Metrics.MustRegister(a.connects, a.reuses,
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "clusterpass_agents", Help: "Agents of private clusters that are connected."},
			func() float64 { return float64(a.registry.size()) }),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "clusterpass_tunnel_streams", Help: "Connections to private clusters that are open."},
			func() float64 { return float64(a.registry.streams.Load()) }),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "clusterpass_tunnel_carried",
				Help: "Connections that the tunnel port carries for functions and other replicas.",
			},
			func() float64 { return float64(a.carried.Load()) }))
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.wg.Go(func() { a.every(ctx, cfg.Recheck, a.recheck) })
	if len(cfg.Peers) > 0 {
		a.wg.Go(func() { a.every(ctx, lookup, a.count) })
	}
	return a
}

// lookup is how often the replicas are counted.
const lookup = 5 * time.Second

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

// count counts the replicas, and tells the agents when their number has changed.
func (a *Agents) count(ctx context.Context) {
	n := len(a.cfg.Peers.addresses(ctx, a.cfg.Lookup))
	if n == 0 {
		return // nothing was learnt
	}
	a.mu.Lock()
	changed := a.replicas != n
	a.replicas = n
	a.mu.Unlock()
	if changed {
		a.announce(ctx)
	}
}

// Drain tells the agents that this replica is about to end, so that they connect to another one before it does.
func (a *Agents) Drain(ctx context.Context) {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	a.announce(ctx)
}

// Wait returns when the tunnel port carries nothing for functions and other replicas, or ctx ends.
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
}

func (a *Agents) announcement() Announcement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Announcement{Replicas: a.replicas, Draining: a.draining}
}

// announce tells every agent, side by side.
func (a *Agents) announce(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range a.registry.all() {
		wg.Go(func() { a.tell(ctx, s) })
	}
	wg.Wait()
}

// tell sends one agent what is to be announced now.
func (a *Agents) tell(ctx context.Context, s *session) {
	body, err := json.Marshal(a.announcement())
	if err != nil {
		panic(err) // an Announcement always marshals
	}
	if _, err := s.call(ctx, http.MethodPut, AnnouncementPath, body); err != nil {
		a.cfg.Log.Debug("an agent cannot be told of the replicas", "cluster", s.cluster, "error", err.Error())
	}
}

// Handler answers what agents ask, and has next answer the rest.
func (a *Agents) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, tail, ok := route.ParseAgent(r.URL.EscapedPath())
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		err := unhurried(w, r, cluster)
		if err == nil {
			err = a.serve(w, r, cluster, tail)
		}
		if err != nil {
			e := status.Write(w, err)
			a.cfg.Log.Info("an agent is refused", "cluster", cluster, "reason", string(e.Reason), "error", e.Message)
		}
	})
}

const (
	// takeTimeout is how long a client may leave an answer here, and bodyTimeout how long it may hold the connection with a body that is
	// refused. (A websocket has limits of its own.)
	takeTimeout = time.Minute
	bodyTimeout = 5 * time.Second
)

// unhurried sees to it that nobody holds a connection by sending or taking nothing. Agents send no body: whoever has one is refused.
func unhurried(w http.ResponseWriter, r *http.Request, cluster string) error {
	if r.ContentLength == 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(takeTimeout))
		return nil
	}
	leave(w)
	return status.New(status.BadRequest, cluster, "agents of cluster %q send no body", cluster)
}

// leave has the connection end with the answer, also if whoever asked sends or takes nothing.
func leave(w http.ResponseWriter) {
	c := http.NewResponseController(w) // what cannot have deadlines needs none
	_ = c.SetWriteDeadline(time.Now().Add(takeTimeout))
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout)) // the server reads on for a while what nobody wants
	w.Header().Set("Connection", "close")
}

func (a *Agents) serve(w http.ResponseWriter, r *http.Request, cluster, tail string) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return status.New(status.Unauthenticated, "", "agents connect here, with the credential of their cluster")
	}
	renews := tail == route.AgentCredential && r.Method == http.MethodPost
	p := passes.Presented{Token: token, Proof: r.Header.Get(possession.ProofHeader), Use: possession.Connect}
	if renews {
		p.Use, p.Request = possession.Renew, r.Header.Get(possession.RequestHeader)
	}
	agent, err := a.cfg.Keys.Agent(r.Context(), cluster, p)
	if err == nil && renews {
		err = a.renewed(w, r, agent, p.Request)
	}
	if err != nil {
		a.alarm(r, err)
		return err
	}
	switch {
	case renews:
		return nil
	case tail == "" && websocket.IsWebSocketUpgrade(r):
		return a.connect(w, r, agent)
	}
	return status.New(status.BadRequest, cluster, "agents of cluster %q connect here by websocket", cluster)
}

// connect holds an agent's tunnel until it ends.
func (a *Agents) connect(w http.ResponseWriter, r *http.Request, agent *passes.Agent) error {
	id, err := uuid.Parse(r.Header.Get(AgentHeader))
	if err != nil {
		return status.New(status.BadRequest, agent.Cluster, "an agent says who it is by a UUID in %s", AgentHeader)
	}
	if strings.Contains(r.Header.Get(HaveHeader), a.id) && a.registry.has(agent.Cluster, id.String()) {
		w.Header().Set(ReplicaHeader, a.id)
		w.WriteHeader(http.StatusConflict) // which is no failure: the balancer had no other for it
		return nil
	}
	now := a.announcement()
	if now.Draining {
		return status.New(status.Draining, agent.Cluster, "this bridge is shutting down; connect to another one")
	}
	if err := a.registry.room(agent.Cluster, id.String()); err != nil {
		return err // while it can be told to wait: one that is cut off after it had connected would come again at once
	}
	ws, err := a.upgrader.Upgrade(w, r, http.Header{ReplicaHeader: {a.id}, ReplicasHeader: {strconv.Itoa(now.Replicas)}})
	if err != nil {
		return nil //nolint:nilerr // the upgrader has answered
	}
	mux, err := carrier.Opener(ws)
	if err != nil {
		return nil //nolint:nilerr // the agent is gone
	}
	defer func() { _ = mux.Close() }()
	s := &session{cluster: agent.Cluster, agent: id.String(), mux: mux}
	s.by.Store(agent)
	log := a.cfg.Log.With("cluster", s.cluster, "agent", s.agent)
	if err := a.registry.add(s); err != nil {
		log.Warn("an agent is turned away", "error", err.Error())
		return nil
	}
	defer a.registry.remove(s)
	log.Info("an agent has connected", "remote", ws.RemoteAddr().String())
	if a.announcement() != now {
		a.tell(r.Context(), s) // it changed meanwhile
	}
	<-mux.CloseChan()
	log.Info("an agent's tunnel has ended", "streams", s.streams.Load())
	return nil
}

// Prepare implements cluster.Tunnel for the bridge itself. Only peers are asked with keys.
func (a *Agents) Prepare(ctx context.Context) {
	if len(a.cfg.Peers) > 0 {
		a.hops.Prepare(ctx)
	}
}

// Dial implements cluster.Tunnel for the bridge itself.
func (a *Agents) Dial(ctx context.Context, cluster, address string, proxy *url.URL,
	_ func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	conn, err := a.dial(ctx, tunnel.WayTo(cluster, address, proxy), true)
	var known *status.Error
	if errors.As(err, &known) {
		known.Cluster = cluster // which may be reached by another one's agents
	}
	return conn, err
}

// dialTimeout bounds a connection's making, however many agents and peers there are to be asked.
const dialTimeout = 20 * time.Second

// dial connects to where way leads, through an agent that is connected here, or to a peer, within dialTimeout.
func (a *Agents) dial(ctx context.Context, way tunnel.Way, hop bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := a.registry.open(ctx, way)
	result := "here"
	if err != nil && hop && ctx.Err() == nil {
		if other, herr := a.hop(ctx, way); herr == nil || errors.Is(err, tunnel.ErrNone) {
			result, conn, err = "peer", other, herr
		}
	}
	if err != nil {
		err = explain(ctx, way.Cluster, err)
		var known *status.Error
		if result = "canceled"; errors.As(err, &known) {
			result = string(known.Reason)
		}
	}
	a.connects.WithLabelValues(result).Inc()
	return conn, err
}

// hop asks the peers, by race. One that has no agent of the cluster says so at once; it may be this replica, too.
func (a *Agents) hop(ctx context.Context, way tunnel.Way) (net.Conn, error) {
	peers := a.cfg.Peers.addresses(ctx, a.cfg.Lookup)
	conn, errs := race(ctx, len(peers), func(ctx context.Context, i int) (net.Conn, error) {
		return a.try(ctx, way, peers[i])
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
		if errors.Is(herr, tunnel.ErrRefused) || errors.As(herr, &known) && known.Reason == status.Timeout {
			err = herr // more than that there is none there
		}
	}
	return nil, err
}

func (a *Agents) try(ctx context.Context, way tunnel.Way, peer string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return a.hops.Hop(ctx, way, peer)
}

// explain makes an error of open or hop one for the caller.
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
				"cluster %q is private, and none of its agents is connected; look at them there: kubectl -n clusterpass-system "+
					"get pods", cluster)}
	case errors.Is(err, context.DeadlineExceeded):
		return &status.Error{Reason: status.Timeout, Cluster: cluster, Err: err,
			Message: fmt.Sprintf("cluster %q is private, and none of its agents answers in time; try again", cluster)}
	}
	return &status.Error{Reason: status.Unreachable, Cluster: cluster, Err: err,
		Message: fmt.Sprintf("cluster %q is private, and the tunnel to it broke off; try again", cluster)}
}
