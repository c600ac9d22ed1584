// Package streams keeps account of the calls that stay open: it admits them, measures them and ends them.
//
// Invariants:
//   - A stream is counted from Open to Close, whatever happens between; hijacked connections too, which http.Server
//     forgets.
//   - Nothing is buffered: a client that does not read holds its member up, and after StallTimeout its stream ends.
//   - What the registry ends looks whole only where it is: a watch ends between two events, a websocket with a close
//     frame that says why; every other answer breaks off.
//   - Labels of metrics are bounded, whatever callers ask for.
package streams

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/status"
)

// Config limits streams. Zero means no limit.
type Config struct {
	MaxStreams     int           // in all
	MaxPerCaller   int           // of one user
	IdleTimeout    time.Duration // without a byte of data in either direction
	SessionTimeout time.Duration // from the beginning
	StallTimeout   time.Duration // for one write that the client does not take
	PingPeriod     time.Duration // of silence towards a websocket client, after which it is pinged; zero never pings
}

// Info says what a stream is.
type Info struct {
	Kind    Kind
	Cluster string
	User    string
}

// Registry holds the open streams. It is safe for concurrent use.
type Registry struct {
	cfg     Config
	metrics *metrics

	mu       sync.Mutex
	open     map[*Stream]struct{}
	callers  map[string]int
	draining bool
	closed   chan struct{} // signalled, not closed, when a stream ends
}

// New returns an empty registry whose metrics are registered with reg.
func New(cfg Config, reg prometheus.Registerer) *Registry {
	return &Registry{
		cfg: cfg, metrics: newMetrics(reg),
		open: map[*Stream]struct{}{}, callers: map[string]int{}, closed: make(chan struct{}, 1),
	}
}

// retryAfter is what a refused client is told to wait.
const retryAfter = 5 * time.Second

// Open admits a stream or returns a *status.Error of reason TooManyRequests or Draining. Who opens a Stream closes it.
func (r *Registry) Open(ctx context.Context, info Info) (*Stream, error) {
	r.mu.Lock()
	err := r.refusal(info)
	if err == nil {
		r.callers[info.User]++
	}
	var s *Stream
	if err == nil {
		s = newStream(ctx, r, info)
		r.open[s] = struct{}{}
	}
	r.mu.Unlock()
	if err != nil {
		r.metrics.failed(info, err.Reason)
		return nil, err
	}
	return s, nil
}

func (r *Registry) refusal(info Info) *status.Error {
	var err *status.Error
	switch {
	case r.draining:
		err = status.New(status.Draining, "", "this bridge is shutting down; call again")
	case r.cfg.MaxStreams > 0 && len(r.open) >= r.cfg.MaxStreams:
		err = status.New(status.TooManyRequests, "", "the bridge holds %d streams, its limit; try again later", len(r.open))
	case r.cfg.MaxPerCaller > 0 && r.callers[info.User] >= r.cfg.MaxPerCaller:
		err = status.New(status.TooManyRequests, "",
			"you have %d streams open, the limit for one caller; close some, or try again later", r.callers[info.User])
	default:
		return nil
	}
	err.RetryAfter = retryAfter
	return err
}

func (r *Registry) remove(s *Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, s)
	if r.callers[s.info.User]--; r.callers[s.info.User] <= 0 {
		delete(r.callers, s.info.User)
	}
	select {
	case r.closed <- struct{}{}:
	default:
	}
}

// Len is the number of open streams.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// Drain refuses new streams, ends watches at once, lets the others go on until sessions ends, then ends them too, and returns
// when none is left or ctx ends. It is called once.
func (r *Registry) Drain(ctx, sessions context.Context) {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	r.end(func(s *Stream) bool { return s.info.Kind == Watch })
	r.wait(sessions)
	r.end(func(*Stream) bool { return true })
	r.wait(ctx)
}

func (r *Registry) end(which func(*Stream) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.open {
		if which(s) {
			go s.End(drained)
		}
	}
}

// wait returns when no stream is left or ctx ends.
func (r *Registry) wait(ctx context.Context) {
	for r.Len() > 0 {
		select {
		case <-r.closed:
		case <-ctx.Done():
			return
		}
	}
}

// Why the registry ends a stream.
var (
	drained = status.New(status.Draining, "", "the bridge is shutting down; call again")
	idle    = status.New(status.IdleTimeout, "", "nothing was sent for too long")
	tooLong = status.New(status.SessionTimeout, "", "the session reached its time limit")
	stalled = status.New(status.Stalled, "", "the client took nothing for too long")
)
