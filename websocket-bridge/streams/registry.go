// Package streams admits, measures and ends requests that stay open.
//
// Invariants:
//   - A stream counts from Open to Close. This includes hijacked connections, which http.Server no longer tracks.
//   - Nothing is buffered. A client that does not read blocks its member, and its stream ends after StallTimeout.
//   - A watch that the registry ends stops between two events. A websocket gets a close frame with the reason. Other
//     responses are cut, so that they do not look complete.
//   - The number of metric labels is limited.
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
	MaxStreams     int           // maximum number of streams
	MaxPerCaller   int           // maximum number of streams of one user
	IdleTimeout    time.Duration // maximum time without data in either direction
	SessionTimeout time.Duration // maximum duration
	StallTimeout   time.Duration // maximum time of one write to the client
	PingPeriod     time.Duration // idle time after which a websocket client is pinged; zero never pings
}

// Info describes a stream.
type Info struct {
	Kind    Kind
	Cluster string
	User    string
}

// Registry contains the open streams. It is safe for concurrent use.
type Registry struct {
	cfg     Config
	metrics *metrics

	mu       sync.Mutex
	open     map[*Stream]struct{}
	callers  map[string]int
	draining bool
	closed   chan struct{} // receives a value when a stream ends
}

// New returns an empty registry and registers its metrics with reg.
func New(cfg Config, reg prometheus.Registerer) *Registry {
	return &Registry{
		cfg: cfg, metrics: newMetrics(reg),
		open: map[*Stream]struct{}{}, callers: map[string]int{}, closed: make(chan struct{}, 1),
	}
}

const retryAfter = 5 * time.Second

// Open admits a stream, or returns a *status.Error with reason TooManyRequests or Draining. The caller must close the
// stream.
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
		err = status.New(status.TooManyRequests, "", "the bridge has %d streams open, its limit; try again later",
			len(r.open))
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

// Len returns the number of open streams.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// Drain refuses new streams. It ends watches at once, and other streams when the context sessions ends. It returns when
// no stream is left, or when ctx ends. Call it once.
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
			go s.End(errDrained)
		}
	}
}

func (r *Registry) wait(ctx context.Context) {
	for r.Len() > 0 {
		select {
		case <-r.closed:
		case <-ctx.Done():
			return
		}
	}
}

var (
	errDrained = status.New(status.Draining, "", "the bridge is shutting down; call again")
	errIdle    = status.New(status.IdleTimeout, "", "nothing was sent for too long")
	errTooLong = status.New(status.SessionTimeout, "", "the session reached its time limit")
	errStalled = status.New(status.Stalled, "", "the client read nothing for too long")
)
