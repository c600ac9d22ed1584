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

// Stream is an open request without a known end, such as a watch. Its methods are safe for concurrent use.
type Stream struct {
	registry     *Registry
	info         Info
	ctx          context.Context
	cancel       context.CancelCauseFunc
	detach       func() bool // stops the callback that ends the stream when the request's context ends
	started      time.Time
	sessionTimer *time.Timer
	idleTimer    *time.Timer
	lastActive   atomic.Int64       // time of the last data, in ns after the start of the stream
	in, out      prometheus.Counter // bytes from and to the client

	mu        sync.Mutex
	endReason *status.Error           // first reason for which the stream was ended, or nil
	finish    func(why *status.Error) // ends the response in an orderly manner, or nil if only a cut can end it
	// setWriteDeadline sets the client's write deadline. It is nil before startWriteDeadlines, after a hijack and after
	// Close.
	setWriteDeadline func(time.Time) error
	// lastDeadline is the latest write deadline that an ending stream may get. It is zero until updateDeadlineLocked is
	// first called for the ending stream.
	lastDeadline time.Time
	closed       bool
}

func newStream(ctx context.Context, r *Registry, info Info) *Stream {
	s := &Stream{registry: r, info: info, started: time.Now()}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.detach = context.AfterFunc(ctx, func() {
		// A *status.Error is the reason for which the gateway ends the stream, such as revoked access. Any other cause means
		// that the client is gone.
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
		s.sessionTimer = time.AfterFunc(d, func() { s.End(errTooLong) })
	}
	if d := r.cfg.IdleTimeout; d > 0 {
		s.idleTimer = time.AfterFunc(d, s.checkIdle)
	}
	return s
}

// Context ends with the stream. Its cause wraps a *status.Error if the gateway ended the stream, unless the handler
// returned first. After the orderly end of a watch without a websocket, the cause also matches forward.ErrFinished, so
// that the response looks complete.
func (s *Stream) Context() context.Context { return s.ctx }

// finishTime is the maximum duration of an orderly end. Context is cancelled after finishTime.
const finishTime = 5 * time.Second

// End calls the function of setFinish, and cancels Context after finishTime. Without such a function, End cancels
// Context at once.
func (s *Stream) End(why *status.Error) {
	s.mu.Lock()
	if s.endReason != nil || s.closed {
		s.mu.Unlock()
		return
	}
	s.endReason = why
	if s.setWriteDeadline != nil {
		s.updateDeadlineLocked(s.setWriteDeadline) // a write in progress must not delay the end
	}
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

// setFinish sets the function with which End ends the response in an orderly manner. If the stream is ending already,
// setFinish calls fn itself. fn must cause Context to be cancelled.
func (s *Stream) setFinish(fn func(why *status.Error)) {
	s.mu.Lock()
	s.finish = fn
	why := s.endReason
	s.mu.Unlock()
	if why != nil {
		fn(why)
	}
}

// Close removes the stream from its registry. It returns the reason for which the stream was ended, or err if there is
// none.
func (s *Stream) Close(err error) error {
	s.mu.Lock()
	why := s.endReason
	s.closed = true
	if s.setWriteDeadline != nil {
		s.updateDeadlineLocked(s.setWriteDeadline) // the rest of the response is written after the handler returns
		s.setWriteDeadline = nil
	}
	s.mu.Unlock()
	s.detach()
	s.cancel(context.Canceled)
	for _, t := range []*time.Timer{s.sessionTimer, s.idleTimer} {
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

// startWriteDeadlines sets the first write deadline. If the stream is ended before its handler returns, it sets a
// deadline of at most finishTime from then, unless the connection was hijacked. So a client that does not read the
// response cannot delay that end.
func (s *Stream) startWriteDeadlines(set func(time.Time) error) {
	s.mu.Lock()
	s.setWriteDeadline = set
	s.updateDeadlineLocked(set)
	s.mu.Unlock()
	context.AfterFunc(s.ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.setWriteDeadline != nil {
			s.updateDeadlineLocked(s.setWriteDeadline)
		}
	})
}

func (s *Stream) touch() { s.lastActive.Store(int64(time.Since(s.started))) }

func (s *Stream) checkIdle() {
	left := s.registry.cfg.IdleTimeout - (time.Since(s.started) - time.Duration(s.lastActive.Load()))
	if left <= 0 {
		s.End(errIdle)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.idleTimer.Reset(left)
	}
}

type finishedError struct{ why *status.Error }

func (f finishedError) Error() string { return f.why.Error() }

func (f finishedError) Unwrap() error { return f.why }

func (finishedError) Is(target error) bool { return target == forward.ErrFinished }

func (s *Stream) updateDeadline(set func(time.Time) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updateDeadlineLocked(set)
}

// updateDeadlineLocked sets the write deadline to StallTimeout from now. Without StallTimeout, a stream gets no
// deadline until it is ending. For an ending stream, the first call sets lastDeadline to finishTime from now, and no
// call sets a deadline later than lastDeadline. s.mu must be locked.
func (s *Stream) updateDeadlineLocked(set func(time.Time) error) {
	now := time.Now()
	var deadline time.Time
	if d := s.registry.cfg.StallTimeout; d > 0 {
		deadline = now.Add(d)
	}
	if s.endReason != nil || s.ctx.Err() != nil {
		if s.lastDeadline.IsZero() {
			s.lastDeadline = now.Add(finishTime)
		}
		if deadline.IsZero() || deadline.After(s.lastDeadline) {
			deadline = s.lastDeadline
		}
	}
	if !deadline.IsZero() {
		_ = set(deadline) // an error means that the connection is closed, so that the next write fails
	}
}

// countRead counts n bytes from the client. If isActivity is true, they restart the idle timeout.
func (s *Stream) countRead(n int, isActivity bool) {
	if n > 0 {
		s.in.Add(float64(n))
		if isActivity {
			s.touch()
		}
	}
}

// countWritten is like countRead for bytes to the client. If err is a timeout, the client has stalled, and countWritten
// ends the stream.
func (s *Stream) countWritten(n int, isActivity bool, err error) {
	if n > 0 {
		s.out.Add(float64(n))
		if isActivity {
			s.touch()
		}
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		s.mu.Lock()
		if s.endReason == nil {
			s.endReason = errStalled
		}
		why := s.endReason
		s.mu.Unlock()
		s.cancel(why)
	}
}
