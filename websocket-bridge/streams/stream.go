package streams

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Stream is one open call. Its methods are safe for concurrent use.
type Stream struct {
	registry *Registry
	info     Info
	ctx      context.Context
	cancel   context.CancelCauseFunc
	leave    func() bool // stops following the call's own context
	started  time.Time
	session  *time.Timer
	idle     *time.Timer
	active   atomic.Int64       // when data last passed, in ns since started
	in, out  prometheus.Counter // bytes from and to the client

	mu     sync.Mutex
	ended  *status.Error           // why the registry ends it; nil while it goes on
	finish func(why *status.Error) // ends it better than by cutting; nil where nothing is better
	// client sets the time by which writes to the client end; nil once the connection is hijacked, and with Close.
	client func(time.Time) error
	closed bool
}

func newStream(ctx context.Context, r *Registry, info Info) *Stream {
	s := &Stream{registry: r, info: info, started: time.Now()}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.leave = context.AfterFunc(ctx, func() {
		// Whoever ends the call for a reason, such as a right that was taken away, has the client told.
		var why *status.Error
		if cause := context.Cause(ctx); errors.As(cause, &why) {
			s.End(why)
		} else {
			s.cancel(cause)
		}
	})
	s.in, s.out = r.metrics.opened(info)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := r.cfg.SessionTimeout; d > 0 {
		s.session = time.AfterFunc(d, func() { s.End(tooLong) })
	}
	if d := r.cfg.IdleTimeout; d > 0 {
		s.idle = time.AfterFunc(d, s.checkIdle)
	}
	return s
}

// Context ends with the stream. Its cause is a *status.Error where the registry ended it, and then also
// forward.ErrFinished if what was sent is whole.
func (s *Stream) Context() context.Context { return s.ctx }

// finishTime bounds how long a stream may take to end well, after which it is cut.
const finishTime = 5 * time.Second

// End ends the stream for a reason: as well as its kind allows, or by cutting it.
func (s *Stream) End(why *status.Error) {
	s.mu.Lock()
	if s.ended != nil || s.closed {
		s.mu.Unlock()
		return
	}
	s.ended = why
	finish := s.finish
	s.mu.Unlock()
	if finish == nil {
		s.cancel(why)
		return
	}
	cut := time.AfterFunc(finishTime, func() { s.cancel(why) })
	context.AfterFunc(s.ctx, func() { cut.Stop() })
	finish(why)
}

// onEnd sets how the stream ends well. fn returns soon; it, or something that it sets off, cancels the stream.
func (s *Stream) onEnd(fn func(why *status.Error)) {
	s.mu.Lock()
	s.finish = fn
	why := s.ended
	s.mu.Unlock()
	if why != nil {
		fn(why)
	}
}

// Close counts the stream as ended and tells the metrics how. err is what the call failed with, if it did. It returns
// the reason for which the registry ended the stream, or else err.
func (s *Stream) Close(err error) error {
	s.mu.Lock()
	why := s.ended
	s.closed = true
	if s.client != nil {
		s.setDeadline(s.client) // what is left of the answer is written when the call has returned
		s.client = nil
	}
	s.mu.Unlock()
	s.leave()
	s.cancel(context.Canceled)
	for _, t := range []*time.Timer{s.session, s.idle} {
		if t != nil {
			t.Stop()
		}
	}
	s.registry.remove(s)
	var failed *status.Error
	switch {
	case why != nil:
		err = why
		failed = why
	case err != nil && !errors.Is(err, context.Canceled):
		failed = status.From(err)
	}
	if failed != nil {
		s.registry.metrics.failed(s.info, failed.Reason)
	}
	s.registry.metrics.closed(s.info, time.Since(s.started))
	return err
}

// setClient keeps a client that takes nothing from holding up the end of the stream.
func (s *Stream) setClient(deadline func(time.Time) error) {
	s.mu.Lock()
	s.client = deadline
	s.setDeadline(deadline)
	s.mu.Unlock()
	context.AfterFunc(s.ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.client != nil {
			s.setDeadline(s.client)
		}
	})
}

// touch notes that data passes.
func (s *Stream) touch() { s.active.Store(int64(time.Since(s.started))) }

func (s *Stream) checkIdle() {
	left := s.registry.cfg.IdleTimeout - (time.Since(s.started) - time.Duration(s.active.Load()))
	if left <= 0 {
		s.End(idle)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.idle.Reset(left)
	}
}

// finished is the cause of a stream that ended with all that it sent whole.
type finished struct{ why *status.Error }

func (f finished) Error() string { return f.why.Error() }

func (f finished) Unwrap() error { return f.why }

func (finished) Is(target error) bool { return target == forward.ErrFinished }

// deadline gives one write to the client its time.
func (s *Stream) deadline(set func(time.Time) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setDeadline(set)
}

// setDeadline gives the client its time to take something: little, once the stream is to end. The caller holds mu.
func (s *Stream) setDeadline(set func(time.Time) error) {
	d := s.registry.cfg.StallTimeout
	if (s.ended != nil || s.ctx.Err() != nil) && (d == 0 || d > finishTime) {
		d = finishTime
	}
	if d > 0 {
		_ = set(time.Now().Add(d)) // a connection that cannot will fail soon
	}
}

// read notes bytes from the client; alive says whether they are a sign of life.
func (s *Stream) read(n int, alive bool) {
	if n > 0 {
		s.in.Add(float64(n))
		if alive {
			s.touch()
		}
	}
}

// wrote notes what a write to the client did.
func (s *Stream) wrote(n int, alive bool, err error) {
	if n > 0 {
		s.out.Add(float64(n))
		if alive {
			s.touch()
		}
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		s.mu.Lock()
		if s.ended == nil {
			s.ended = stalled
		}
		s.mu.Unlock()
		s.cancel(stalled)
	}
}
