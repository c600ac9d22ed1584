package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// patience is how long a request waits for a slot in a full queue before its event is lost.
	patience       = time.Second
	deliverTimeout = 30 * time.Second
	directTimeout  = 5 * time.Second
	// A pause doubles after each failure. It is short without a queue, since FailClosed refuses requests meanwhile.
	firstPause      = 500 * time.Millisecond
	lastPause       = 30 * time.Second
	lastDirectPause = 5 * time.Second

	maxQueueBytes = 32 << 20
	maxBatch      = 400 // events of one delivery, as kube-apiserver's webhook has by default
	maxBatchBytes = 4 << 20
)

var errClosed = errors.New("the audit log is closed")

// entry is an event as a line of JSON, the number of requests' events that it represents, and the caller.
type entry struct {
	line   []byte
	count  int
	caller string
}

// usage is a part of a queue.
type usage struct{ events, bytes int }

func (u usage) plus(events, bytes int) usage { return usage{u.events + events, u.bytes + bytes} }

// One caller's events may use a queue's size divided by callerShare.
const callerShare = 4

// spool stores events until its sink has accepted them. With a queue, one goroutine delivers them. Without one, each
// request delivers its own event. A spool is safe for concurrent use.
type spool struct {
	log        *Log
	sink       Sink
	limit      int // events
	isDirect   bool
	failClosed bool

	ctx     context.Context // of all deliveries
	stop    context.CancelFunc
	wake    chan struct{} // has an element if there may be events to deliver
	closing chan struct{}
	done    chan struct{} // closed when no goroutine delivers any more

	redelivering sync.Mutex

	mu      sync.Mutex
	events  []entry // oldest first
	bytes   int
	callers map[string]usage // of identified callers with events in the queue
	freed   chan struct{}    // closed and replaced when events leave
	lastErr error            // the error of the last delivery; nil if it succeeded
	pause   time.Duration    // after the last delivery
	nextTry time.Time
	closed  bool
	proven  bool // the sink has accepted an event
}

func newSpool(l *Log, sink Sink) *spool {
	s := &spool{
		log: l, sink: sink, limit: max(l.cfg.Queue, 1), isDirect: l.cfg.Queue <= 0, failClosed: l.cfg.FailClosed,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}), freed: make(chan struct{}),
		callers: map[string]usage{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if s.isDirect {
		close(s.done)
	} else {
		go s.run()
	}
	return s
}

func (s *spool) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

func (s *spool) waitingCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.events {
		n += e.count
	}
	return n
}

// needsProof reports whether requests must be refused unless the sink accepts an event first. With a queue, the event
// of an accepted request can wait instead.
func (s *spool) needsProof() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isUnproven() && len(s.events) == 0
}

// isUnproven reports whether the sink must accept an event before requests are admitted. s.mu must be locked.
func (s *spool) isUnproven() bool { return s.isDirect && s.failClosed && !s.proven }

// prove records that the sink has accepted a number of events.
func (s *spool) prove(accepted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven = s.proven || accepted > 0
}

// A reserved event is queued even if the queue is full. Requests in flight bound their number. end is the end of the
// delivery without a queue.
func (s *spool) put(e entry, reserved bool, end time.Time) {
	if s.isDirect {
		s.deliverNow(e, reserved, end)
		return
	}
	var tooLate <-chan time.Time
	for {
		freed, err := s.enqueue(e, reserved)
		switch {
		case err == nil:
			return
		case freed == nil:
			s.log.lose(e.count, err)
			return
		}
		if tooLate == nil {
			tooLate = time.After(patience)
		}
		select {
		case <-freed:
		case <-tooLate:
			s.log.lose(e.count, err)
			return
		}
	}
}

// With an error, freed is nil unless waiting for it may help.
func (s *spool) enqueue(e entry, reserved bool) (freed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case !reserved && s.isFull():
		if s.lastErr != nil {
			return nil, fmt.Errorf("the queue is full: %w", s.lastErr)
		}
		err := errors.New("the queue is full")
		if s.failClosed {
			return nil, err
		}
		return s.freed, err
	}
	s.events = append(s.events, e)
	s.count(e, 1)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil, nil
}

// count adds an entry to the sizes of the queue, or removes it with a sign of -1. s.mu must be locked.
func (s *spool) count(e entry, sign int) {
	s.bytes += sign * len(e.line)
	if e.caller == "" {
		return
	}
	if u := s.callers[e.caller].plus(sign, sign*len(e.line)); u.events > 0 {
		s.callers[e.caller] = u
	} else {
		delete(s.callers, e.caller)
	}
}

// isFull reports whether the queue is full. s.mu must be locked.
func (s *spool) isFull() bool { return len(s.events) >= s.limit || s.bytes >= maxQueueBytes }

func (s *spool) isShareUsed(caller string) bool {
	u := s.callers[caller]
	return u.events >= max(1, s.limit/callerShare) || u.bytes >= maxQueueBytes/callerShare
}

// fullFor returns 0 if a new request's events can be queued, and otherwise the pause before a retry. A sink that needs
// a proof and rejected it counts as full. With a caller, fullFor considers only the caller's share of the queue.
func (s *spool) fullFor(ctx context.Context, caller string) time.Duration {
	if caller == "" && s.isDirect {
		s.redeliver(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if caller == "" && !s.isFull() && !s.isUnproven() || caller != "" && !s.isShareUsed(caller) {
		return 0
	}
	return max(time.Until(s.nextTry), time.Second)
}

func (s *spool) run() {
	defer close(s.done)
	closing := s.closing
	for {
		batch := s.next()
		if batch == nil {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, deliverTimeout)
		n, err := s.deliver(ctx, batch)
		cancel()
		pause := s.finishDelivery(n, err)
		if err == nil {
			continue
		}
		s.log.complain(complainFailed, "waiting", s.waiting(), "error", err.Error())
		if closing == nil {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-closing:
			closing = nil
		case <-s.ctx.Done():
		}
	}
}

func (s *spool) next() []entry {
	for s.ctx.Err() == nil {
		s.mu.Lock()
		batch, closed := s.batch(), s.closed
		s.mu.Unlock()
		if len(batch) > 0 {
			return batch
		}
		if closed {
			return nil
		}
		<-s.wake
	}
	return nil
}

// batch returns the oldest events, at most as many as one delivery may contain. s.mu must be locked.
func (s *spool) batch() []entry {
	bytes := 0
	for i, e := range s.events {
		if bytes += len(e.line); i == maxBatch || i > 0 && bytes > maxBatchBytes {
			return slices.Clone(s.events[:i])
		}
	}
	return slices.Clone(s.events)
}

// deliver returns how many first events are done. It halves a rejected batch until it finds the event.
func (s *spool) deliver(ctx context.Context, batch []entry) (int, error) {
	lines := make([][]byte, len(batch))
	for i, e := range batch {
		lines[i] = e.line
	}
	n, err := s.sink.Deliver(ctx, lines)
	accepted := n
	if rejected := (*RejectedError)(nil); errors.As(err, &rejected) {
		accepted -= len(rejected.Events)
		for _, i := range rejected.Events {
			s.log.lose(batch[i].count, err)
		}
	}
	s.prove(accepted)
	switch {
	case err == nil, n == len(batch):
		return len(batch), nil
	case !errors.Is(err, ErrRejected):
		return n, err
	case n == 0 && len(batch) == 1:
		return s.deliverShort(ctx, batch[0], err)
	case n == 0:
		half := len(batch) / 2
		if n, err = s.deliver(ctx, batch[:half]); err != nil {
			return n, err
		}
	}
	rest, err := s.deliver(ctx, batch[n:])
	return n + rest, err
}

// deliverShort delivers a rejected event with short texts, so that a client cannot choose texts that prevent its event.
// If the sink rejects that, too, the event is lost.
func (s *spool) deliverShort(ctx context.Context, e entry, rejected error) (int, error) {
	line, err := shortLine(e.line)
	if err != nil {
		s.log.lose(e.count, rejected)
		return 1, nil
	}
	switch n, err := s.sink.Deliver(ctx, [][]byte{line}); {
	case errors.Is(err, ErrRejected):
		s.log.lose(e.count, err)
		return 1, nil
	default:
		s.prove(n)
		return n, err
	}
}

func (s *spool) finishDelivery(n int, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events[:n] {
		s.count(e, -1)
	}
	s.events = slices.Delete(s.events, 0, n)
	if n > 0 {
		close(s.freed)
		s.freed = make(chan struct{})
	}
	if err == nil {
		if s.lastErr != nil {
			s.log.cfg.Log.Info("audit events are delivered again", "waiting", len(s.events))
		}
		s.lastErr, s.pause = nil, 0
		return 0
	}
	most := lastPause
	if s.isDirect {
		most = lastDirectPause
	}
	s.lastErr, s.pause = err, min(max(2*s.pause, firstPause), most)
	s.nextTry = time.Now().Add(s.pause)
	return s.pause
}

// deliverNow delivers one event until end. If that fails, it stores the event with FailClosed. Otherwise the event is
// lost.
func (s *spool) deliverNow(e entry, reserved bool, end time.Time) {
	s.mu.Lock()
	err := s.lastErr
	if err != nil && !time.Now().Before(s.nextTry) {
		err = nil
	}
	if s.closed {
		err = errClosed
	}
	s.mu.Unlock()
	if err == nil {
		ctx, cancel := context.WithDeadline(s.ctx, end)
		_, err = s.deliver(ctx, []entry{e})
		cancel()
		s.finishDelivery(0, err)
	}
	if err == nil {
		return
	}
	if s.failClosed {
		if _, full := s.enqueue(e, reserved); full == nil {
			s.log.complain(complainFailed, "waiting", s.waiting(), "error", err.Error())
			return
		}
	}
	s.log.lose(e.count, err)
}

func (s *spool) redeliver(ctx context.Context) {
	s.redelivering.Lock()
	defer s.redelivering.Unlock()
	s.mu.Lock()
	batch, early := s.batch(), time.Now().Before(s.nextTry) && !s.closed
	s.mu.Unlock()
	if len(batch) == 0 || early {
		return
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deliveryEnd(deadlineFrom(ctx)))
	defer cancel()
	s.finishDelivery(s.deliver(ctx, batch))
}

// close delivers the waiting events. If ctx ends first, events are lost, and the sink stays open.
func (s *spool) close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	close(s.closing)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	if s.isDirect {
		s.redeliver(ctx)
	}
	defer s.stop()
	select {
	case <-s.done:
	case <-ctx.Done():
		n := s.waitingCount()
		s.log.lose(n, ctx.Err())
		// A hanging Write cannot be interrupted.
		return fmt.Errorf("close the audit log: %d events wait: %w", n, ctx.Err())
	}
	var err error
	if n := s.waitingCount(); n > 0 { // only without a queue
		s.log.lose(n, errClosed)
		err = fmt.Errorf("close the audit log: %d events could not be delivered: %w", n, s.lastError())
	}
	if c, ok := s.sink.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (s *spool) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}
