package agentserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

const (
	// maxPerCluster limits the agents of one cluster at this bridge. The agents' Deployment has two Pods, and more during
	// an update.
	maxPerCluster = 16
	// maxStreams limits the connections of one session. An agent has a session with each replica of the bridge. The
	// agent's memory limit of 1 GiB is enough for the connections of eight replicas, with some 100 KB each.
	maxStreams = 1024
	// openTimeout is the deadline of one attempt to connect through an agent or another replica, and of one request to an
	// agent.
	openTimeout = 5 * time.Second
)

// registry contains the sessions of agents with this replica, one for each agent. It is safe for concurrent use.
type registry struct {
	max int // maximum number of sessions

	mu        sync.Mutex
	byCluster map[string][]*session
	count     int
	streams   atomic.Int64
	closed    bool
}

type session struct {
	cluster, agent string
	mux            *mux.Session
	opening        *http.Request // the request that opened the tunnel
	streams        atomic.Int64
	credential     atomic.Pointer[passes.Agent] // last verified by the bridge
}

// maxResponse is the maximum size in bytes of the body of an agent's response, and also of its headers.
const maxResponse = 16 << 10

// call sends a request to the agent and returns the response's body. It fails after openTimeout, for a status code
// other than 2xx, and if the body has more than maxResponse bytes.
func (s *session) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", version.UserAgent())
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, MaxResponseHeaderBytes: maxResponse,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				conn, err := s.mux.Open()
				if err == nil {
					end, _ := ctx.Deadline() // closing conn would not interrupt a pending Read
					err = conn.SetDeadline(end)
				}
				return conn, err
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("the agent answers %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxResponse {
		return nil, fmt.Errorf("the agent's response is over %d bytes", maxResponse)
	}
	return data, nil
}

// add adds s, and closes the agent's earlier session if there is one. An agent that connects again has lost the earlier
// session.
func (r *registry) add(s *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, err := r.sessionToReplace(s.cluster, s.agent)
	if err != nil {
		return err
	}
	if before != nil {
		_ = before.mux.Close()
		r.removeLocked(before)
	}
	r.byCluster[s.cluster] = append(r.byCluster[s.cluster], s)
	r.count++
	return nil
}

func (r *registry) checkCapacity(cluster, agent string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.sessionToReplace(cluster, agent)
	return err
}

// sessionToReplace returns the agent's current session or nil. It returns an error if another session would exceed a
// limit, or if r is closed. r.mu must be locked.
func (r *registry) sessionToReplace(cluster, agent string) (before *session, err error) {
	if r.closed {
		return nil, status.New(status.Draining, cluster, "this bridge is shutting down; connect to another one")
	}
	of := r.byCluster[cluster]
	if i := slices.IndexFunc(of, func(o *session) bool { return o.agent == agent }); i >= 0 {
		return of[i], nil
	}
	switch {
	case len(of) >= maxPerCluster:
		return nil, tooManyAgents(cluster, fmt.Sprintf("cluster %q has %d agents at this bridge, the limit for one cluster",
			cluster, len(of)))
	case r.count >= r.max:
		return nil, tooManyAgents(cluster, fmt.Sprintf("this bridge has %d agents, its limit", r.count))
	}
	return nil, nil
}

func tooManyAgents(cluster, why string) error {
	return &status.Error{Reason: status.TooManyRequests, Cluster: cluster, RetryAfter: 10 * time.Second,
		Message: "the agent was refused: " + why + "; try again later"}
}

func (r *registry) has(cluster, agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.byCluster[cluster], func(s *session) bool { return s.agent == agent })
}

func (r *registry) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(s)
}

func (r *registry) removeLocked(s *session) {
	of := r.byCluster[s.cluster]
	i := slices.Index(of, s)
	if i < 0 {
		return
	}
	of = append(slices.Clone(of[:i]), of[i+1:]...)
	r.count--
	if r.byCluster[s.cluster] = of; len(of) == 0 {
		delete(r.byCluster, s.cluster)
	}
}

// sessionsOf returns the sessions of a cluster, those with the fewest connections first.
func (r *registry) sessionsOf(cluster string) []*session {
	r.mu.Lock()
	out := slices.Clone(r.byCluster[cluster])
	r.mu.Unlock()
	slices.SortStableFunc(out, func(a, b *session) int { return int(a.streams.Load() - b.streams.Load()) })
	return out
}

func (r *registry) all() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*session, 0, r.count)
	for _, of := range r.byCluster {
		out = append(out, of...)
	}
	return out
}

func (r *registry) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// agents returns the number of connected agents of each cluster that has any.
func (r *registry) agents() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int, len(r.byCluster))
	for cluster, of := range r.byCluster {
		out[cluster] = len(of)
	}
	return out
}

// agentsDesc describes the metric of agentCounts. CLUSTERPASS_MAX_AGENTS also limits the number of label values,
// because each cluster in the metric has an agent.
var agentsDesc = prometheus.NewDesc("clusterpass_cluster_agents",
	"Agents that are connected to this replica, of each private cluster that has any.", []string{"cluster"}, nil)

// agentCounts is the metric of the agents of each cluster.
type agentCounts struct{ registry *registry }

// Describe implements prometheus.Collector.
func (agentCounts) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- agentsDesc }

// Collect implements prometheus.Collector.
func (c agentCounts) Collect(metrics chan<- prometheus.Metric) {
	for cluster, n := range c.registry.agents() {
		metrics <- prometheus.MustNewConstMetric(agentsDesc, prometheus.GaugeValue, float64(n), cluster)
	}
}

func (r *registry) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, s := range r.all() {
		_ = s.mux.Close()
	}
}

// open connects through one of the cluster's agents. It returns tunnel.ErrNone if no agent is connected, and the error
// of ctx if ctx has ended. Otherwise, it returns the error of the agent that was tried last.
func (r *registry) open(ctx context.Context, target tunnel.Destination) (net.Conn, error) {
	sessions := r.sessionsOf(target.Cluster)
	conn, errs := race(ctx, len(sessions), func(ctx context.Context, i int) (net.Conn, error) {
		return r.openThrough(ctx, sessions[i], target)
	})
	switch {
	case conn != nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(errs) == 0:
		return nil, tunnel.ErrNone
	}
	return nil, errs[len(errs)-1]
}

func (r *registry) openThrough(ctx context.Context, s *session, target tunnel.Destination) (net.Conn, error) {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		return nil, &status.Error{Reason: status.TooManyRequests, Cluster: s.cluster, RetryAfter: time.Second,
			Message: fmt.Sprintf("the connection was refused: an agent of cluster %q has %d connections through this bridge, "+
				"the limit for one agent at one bridge; try again later", s.cluster, maxStreams)}
	}
	r.streams.Add(1)
	done := sync.OnceFunc(func() { s.streams.Add(-1); r.streams.Add(-1) })
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	type opened struct {
		conn net.Conn
		err  error
	}
	result := make(chan opened, 1)
	go func() { // s.mux.Open ignores ctx
		conn, err := s.mux.Open()
		if err == nil {
			if err = tunnel.Connect(ctx, conn, target, http.Header{}); err != nil {
				_ = conn.Close()
			}
		}
		result <- opened{conn, err}
	}()
	select {
	case o := <-result:
		if o.err != nil {
			done()
			return nil, o.err
		}
		return &counted{o.conn, done}, nil
	case <-ctx.Done():
		go func() { // ends with the session at the latest
			if o := <-result; o.err == nil {
				_ = o.conn.Close()
			}
			done()
		}()
		return nil, ctx.Err()
	}
}

// counted is a connection that counts towards maxStreams until Close.
type counted struct {
	net.Conn
	done func()
}

func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}

func (c *counted) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }
