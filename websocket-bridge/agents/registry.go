package agents

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

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	carrier "github.com/clusterpass/clusterpass/websocket-bridge/tunnel"
)

const (
	// maxPerCluster bounds the agents of one cluster: two of a Deployment, and those that replace them.
	maxPerCluster = 16
	// maxStreams bounds the streams of one agent: with eight replicas, they fit into the memory that its manifest lets it have.
	maxStreams = 1024
	// openTimeout is how long an agent may take to connect to its API server, or a peer to have one do so.
	openTimeout = 5 * time.Second
)

// registry holds the sessions of agents. It is safe for concurrent use.
type registry struct {
	max int // sessions in all

	mu        sync.Mutex
	byCluster map[string][]*session
	count     int
	streams   atomic.Int64
	closed    bool
}

// session is one agent's tunnel.
type session struct {
	cluster, agent string
	mux            *carrier.Session
	streams        atomic.Int64
	by             atomic.Pointer[passes.Agent] // the credential, as far as the bridge knows
}

// maxSaid is the size in bytes of what is read of what an agent says.
const maxSaid = 16 << 10

// call asks the agent itself, and returns what it says. Whatever the agent does, it takes openTimeout at most: the context alone does not
// end it, since http.Transport leaves a connection alone that was answered 101, and a stream that was closed can be read for a while.
func (s *session) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, MaxResponseHeaderBytes: maxSaid,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				conn, err := s.mux.Open()
				if err == nil {
					end, _ := ctx.Deadline()
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
	return io.ReadAll(io.LimitReader(resp.Body, maxSaid))
}

// add takes a session in; the same agent's session of before, which it can only have given up, ends.
func (r *registry) add(s *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, err := r.place(s.cluster, s.agent)
	if err != nil {
		return err
	}
	if before != nil {
		_ = before.mux.Close()
		r.without(before)
	}
	r.byCluster[s.cluster] = append(r.byCluster[s.cluster], s)
	r.count++
	return nil
}

// room returns the error that add would.
func (r *registry) room(cluster, agent string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.place(cluster, agent)
	return err
}

// place finds a place for a session of an agent: that of its session before, if it has one, or a new one. The caller holds mu.
func (r *registry) place(cluster, agent string) (before *session, err error) {
	if r.closed {
		return nil, status.New(status.Draining, cluster, "this bridge is shutting down; connect to another one")
	}
	of := r.byCluster[cluster]
	if i := slices.IndexFunc(of, func(o *session) bool { return o.agent == agent }); i >= 0 {
		return of[i], nil
	}
	if r.count >= r.max || len(of) >= maxPerCluster {
		return nil, &status.Error{Reason: status.TooManyRequests, Cluster: cluster, RetryAfter: 10 * time.Second,
			Message: fmt.Sprintf("the bridge holds %d agents, %d of them of cluster %q, and takes no more", r.count, len(of),
				cluster)}
	}
	return nil, nil
}

// has reports whether an agent of a cluster is connected.
func (r *registry) has(cluster, agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.byCluster[cluster], func(s *session) bool { return s.agent == agent })
}

func (r *registry) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.without(s)
}

// without takes a session out, once, and returns its cluster's others.
func (r *registry) without(s *session) []*session {
	of := r.byCluster[s.cluster]
	i := slices.Index(of, s)
	if i < 0 {
		return of
	}
	of = append(slices.Clone(of[:i]), of[i+1:]...)
	r.count--
	if r.byCluster[s.cluster] = of; len(of) == 0 {
		delete(r.byCluster, s.cluster)
	}
	return of
}

// of returns a cluster's sessions, those with the fewest streams first.
func (r *registry) of(cluster string) []*session {
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

// close ends all sessions and takes no more.
func (r *registry) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, s := range r.all() {
		_ = s.mux.Close()
	}
}

// open connects to where way leads through one of the cluster's agents, by race. The error is tunnel.ErrNone, or says of the cluster what was
// wrong, as the last of its agents sees it.
func (r *registry) open(ctx context.Context, way tunnel.Way) (net.Conn, error) {
	of := r.of(way.Cluster)
	conn, errs := race(ctx, len(of), func(ctx context.Context, i int) (net.Conn, error) {
		return r.through(ctx, of[i], way)
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

// through opens a stream in one session.
func (r *registry) through(ctx context.Context, s *session, way tunnel.Way) (net.Conn, error) {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		return nil, &status.Error{Reason: status.TooManyRequests, Cluster: s.cluster, RetryAfter: time.Second,
			Message: fmt.Sprintf("the agents of cluster %q carry %d connections each, and take no more", s.cluster, maxStreams)}
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
	go func() { // opening waits for the tunnel to take it, which has no deadline but the tunnel's own
		conn, err := s.mux.Open()
		if err == nil {
			if err = tunnel.Connect(ctx, conn, way, http.Header{}); err != nil {
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
		go func() { // it ends when the tunnel does, at the latest
			if o := <-result; o.err == nil {
				_ = o.conn.Close()
			}
			done()
		}()
		return nil, ctx.Err()
	}
}

// counted is a stream that is counted until it is closed.
type counted struct {
	net.Conn
	done func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}

// CloseWrite closes one direction.
func (c *counted) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }
