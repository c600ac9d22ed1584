package audit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	complainEvery = 10 * time.Second
	// overrideFor is how long a result of Config.Override is used.
	overrideFor     = 3 * time.Second
	overrideTimeout = 2 * time.Second
)

// Config configures a Log.
type Config struct {
	// To gets one Write for each event, a line of JSON; nil for none. If it is an io.Closer, Close closes it.
	To io.Writer
	// Sinks get batches of events. Close closes each that is an io.Closer.
	Sinks []Sink
	// Queue limits the waiting events for To and each of Sinks, besides 32 MiB. With FailClosed, requests in flight may
	// exceed it. With 0, a method that writes an event blocks until delivery, as processes need that can be frozen after a
	// response. It blocks for five seconds at most, and not beyond the time of WithDeadline.
	Queue int
	// FailClosed makes Request.Admit refuse requests while the queue is full, and Request.AdmitCaller those of a caller
	// with a quarter of it. Otherwise events are lost and counted.
	FailClosed bool
	// Override reports whether an operator suspends FailClosed. It is called every three seconds at most. nil means never.
	Override func(ctx context.Context) (bool, error)
	// UnidentifiedRate is the number of separate events per second for unidentified clients, with a burst of 60 times
	// that. A summary every 10 s counts the others. 0 means limits.DefaultUnidentifiedRate.
	UnidentifiedRate int
	Log              *slog.Logger     // reports lost events and refused requests; nil means slog.Default()
	Now              func() time.Time // nil means time.Now
}

// Stats are counters since the start of a Log, and the current number of waiting events.
type Stats struct {
	Lost       uint64 // events that To or a Sink did not receive, counted for each; a summary counts as its events
	Refused    uint64 // requests that FailClosed refused
	Overridden uint64 // requests that were allowed because of Override, although the queue was full
	Waiting    int    // events that wait for delivery, counted for To and each of Sinks
}

// Log writes events. It is safe for concurrent use. Call Close when done.
type Log struct {
	cfg          Config
	spools       []*spool
	unidentified *limits.Combiner[*Event]

	lost, refused, overridden atomic.Uint64
	complaints                map[complaint]*limited

	override struct {
		sync.Mutex
		asked   time.Time
		allowed atomic.Bool
	}
}

type complaint string

const (
	complainLost     complaint = "audit events are lost"
	complainRefused  complaint = "calls are refused because audit events cannot be delivered"
	complainOverride complaint = "requests continue without audit events because an operator allowed it"
	complainFailed   complaint = "audit events cannot be delivered"
)

// New returns a Log.
func New(cfg Config) *Log {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Log{cfg: cfg, complaints: map[complaint]*limited{}}
	for _, c := range []complaint{complainLost, complainRefused, complainOverride, complainFailed} {
		l.complaints[c] = &limited{}
	}
	var flush func()
	if cfg.Queue > 0 {
		flush = func() { l.writeSummary(0, time.Time{}) }
	}
	l.unidentified = limits.NewCombiner[*Event](cfg.UnidentifiedRate, flush)
	if cfg.To != nil {
		l.spools = append(l.spools, newSpool(l, Lines(cfg.To)))
	}
	for _, sink := range cfg.Sinks {
		l.spools = append(l.spools, newSpool(l, sink))
	}
	return l
}

// Stats returns the counts.
func (l *Log) Stats() Stats {
	s := Stats{Lost: l.lost.Load(), Refused: l.refused.Load(), Overridden: l.overridden.Load()}
	for _, spool := range l.spools {
		s.Waiting += spool.waiting()
	}
	return s
}

// Close delivers the waiting events and closes To and Sinks. If ctx ends first, it returns an error and leaves open
// those that have not received all events.
func (l *Log) Close(ctx context.Context) error {
	l.putSummary(0, deliveryEnd(deadlineFrom(ctx)))
	errs := make([]error, len(l.spools))
	l.forEachSpool(func(i int, s *spool) { errs[i] = s.close(ctx) })
	return errors.Join(errs...)
}

// forEachSpool calls f for all spools in parallel.
func (l *Log) forEachSpool(f func(i int, s *spool)) {
	var wg sync.WaitGroup
	for i, s := range l.spools {
		if i > 0 {
			wg.Go(func() { f(i, s) })
		}
	}
	if len(l.spools) > 0 {
		f(0, l.spools[0])
	}
	wg.Wait()
}

func (l *Log) now() time.Time { return l.cfg.Now() }

type deadlineKey struct{}

// WithDeadline returns a context for requests of a process that cannot deliver events after deadline. It has no effect
// on a Log with a queue.
func WithDeadline(ctx context.Context, deadline time.Time) context.Context {
	return context.WithValue(ctx, deadlineKey{}, deadline)
}

// deadlineFrom returns the time of WithDeadline, or the zero time.
func deadlineFrom(ctx context.Context) time.Time {
	deadline, _ := ctx.Value(deadlineKey{}).(time.Time)
	return deadline
}

// deliveryEnd returns the end of deliveries without a queue that begin now. deadline may be zero.
func deliveryEnd(deadline time.Time) time.Time {
	end := time.Now().Add(directTimeout)
	if !deadline.IsZero() && deadline.Before(end) {
		return deadline
	}
	return end
}

// proveSinks writes a request's event of stage RequestReceived to the sinks that need a proof. If the delivery fails,
// the event waits. If the sink rejects the event, it is lost. In both cases, admit refuses the request.
func (l *Log) proveSinks(e Event, deadline time.Time) {
	if !slices.ContainsFunc(l.spools, (*spool).needsProof) {
		return
	}
	e.mapTexts(func(s string) string { return cut(s, maxUnidentified) }) // the client is not identified yet
	e.Stage, e.StageTimestamp = RequestReceived, metav1.NewMicroTime(l.now())
	line, err := encode(&e)
	if err != nil {
		l.lose(1, err)
		return
	}
	end := deliveryEnd(deadline)
	l.forEachSpool(func(_ int, s *spool) {
		if s.needsProof() {
			s.put(entry{line, 1, ""}, true, end)
		}
	})
}

// admit returns an error while a queue is full or, if caller is not empty, while the caller's share of it is. If
// reserved is true, the request's events are queued even if the queue is full.
func (l *Log) admit(ctx context.Context, caller string) (reserved bool, err error) {
	if !l.cfg.FailClosed {
		return false, nil
	}
	retries := make([]time.Duration, len(l.spools))
	l.forEachSpool(func(i int, s *spool) { retries[i] = s.fullFor(ctx, caller) })
	retry := slices.Max(append(retries, 0))
	if retry == 0 {
		return true, nil
	}
	if l.isOverridden(ctx) {
		l.overridden.Add(1)
		l.complain(complainOverride, "count", l.overridden.Load())
		return false, nil
	}
	n := l.refused.Add(1)
	l.complain(complainRefused, "reason", string(status.AuditUnavailable), "count", n)
	why := "its audit event could not be recorded"
	if caller != "" {
		why = "too many of your audit events wait for their delivery"
	}
	return false, &status.Error{
		Reason: status.AuditUnavailable, RetryAfter: retry,
		Message: "the call is refused: " + why + "; try again later, or ask the gateway's operator",
	}
}

// isOverridden calls Config.Override. While one request calls it, the others use the last result.
func (l *Log) isOverridden(ctx context.Context) bool {
	o := &l.override
	if l.cfg.Override == nil || !o.TryLock() {
		return o.allowed.Load()
	}
	defer o.Unlock()
	if now := time.Now(); o.asked.IsZero() || now.Sub(o.asked) >= overrideFor {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overrideTimeout)
		defer cancel()
		allowed, err := l.cfg.Override(ctx)
		if err != nil {
			l.cfg.Log.Warn("the override of the audit log cannot be read", "error", err.Error())
		}
		o.allowed.Store(allowed && err == nil)
		o.asked = time.Now()
	}
	return o.allowed.Load()
}

func (l *Log) write(e *Event, isIdentified, reserved bool, deadline time.Time) {
	end := deliveryEnd(deadline)
	if isIdentified || l.isSeparate(e) {
		l.put(e, 1, reserved, end)
	}
	l.writeSummary(limits.CombineEvery, end)
}

func (l *Log) hasSpace() bool {
	return !slices.ContainsFunc(l.spools, func(s *spool) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.isFull()
	})
}

// put writes an event to all spools. end is the end of deliveries without a queue.
func (l *Log) put(e *Event, count int, reserved bool, end time.Time) {
	line, err := encode(e)
	if err != nil {
		l.lose(count, err)
		return
	}
	l.forEachSpool(func(_ int, s *spool) { s.put(entry{line, count, e.caller()}, reserved, end) })
}

func (l *Log) lose(events int, err error) {
	n := l.lost.Add(uint64(events))
	l.complain(complainLost, "count", n, "error", err.Error())
}

func (l *Log) complain(c complaint, args ...any) {
	if l.complaints[c].allows(time.Now()) {
		l.cfg.Log.Error(string(c), args...) //nolint:sloglint // the complaints are constants
	}
}

type limited struct {
	mu   sync.Mutex
	last time.Time
}

func (m *limited) allows(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.last.IsZero() && now.Sub(m.last) < complainEvery {
		return false
	}
	m.last = now
	return true
}
