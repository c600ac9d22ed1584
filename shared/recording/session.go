package recording

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

// Session records one session. Its methods are safe for concurrent use. An event has the time of its call.
//
// The methods that record copy their arguments. They block while the Store is too slow, or while other sessions of the
// same caller use its slots, for about twice StoreTimeout at most. Then they return an error. After an error, nothing
// more is recorded and the recording stays without an end.
type Session struct {
	recorder *Recorder
	info     Info
	caller   caller
	ctx      context.Context //nolint:containedctx // of the writes, which outlive every call
	started  time.Time       // with a monotonic clock
	wake     chan struct{}   // has an element if run must store the buffered events
	failed   chan struct{}
	done     chan struct{} // closed after run has returned

	// Only Begin and run use these.
	previous [sha256.Size]byte // the digest of the last part
	number   int               // the number of the next part

	mu      sync.Mutex
	space   sync.Cond // signals that events are empty, or that the session has ended
	events  []byte    // the events of the next part, after firstLine bytes; nil if there are none
	first   time.Duration
	last    time.Duration
	timer   *time.Timer // stores the events when the first of them is partInterval old
	closed  bool
	err     error
	aborted bool // err is that of Abort, and not of the Store
}

// firstLine is the space for the event with the digest of the part before, and the id of the recording.
const firstLine = 192

func newSession(ctx context.Context, r *Recorder, i Info) *Session {
	s := &Session{
		recorder: r, info: i, caller: i.caller(), ctx: ctx, started: r.cfg.Now(), number: 1,
		wake: make(chan struct{}, 1), failed: make(chan struct{}), done: make(chan struct{}),
	}
	s.space.L = &s.mu
	s.timer = time.AfterFunc(time.Hour, s.wakeUp)
	s.timer.Stop()
	return s
}

// ID returns the name of the recording.
func (s *Session) ID() string { return s.info.ID }

// Output records bytes of standard output, which is channel 1, or of standard error, which is channel 2.
func (s *Session) Output(channel int, p []byte) error {
	switch channel {
	case 1:
		return s.record(Output, p)
	case 2:
		return s.record(Stderr, p)
	}
	return fmt.Errorf("record a session: there is no output channel %d", channel)
}

// Input records bytes of standard input. It ignores them unless Info.RecordsInput is true.
func (s *Session) Input(p []byte) error {
	if !s.info.RecordsInput {
		return s.Err()
	}
	return s.record(Input, p)
}

// Resize records the size of the terminal in characters.
func (s *Session) Resize(width, height uint16) error {
	return s.record(Resize, fmt.Appendf(nil, "%dx%d", width, height))
}

// Exit records bytes of the error channel, which contain a metav1.Status.
func (s *Session) Exit(status []byte) error { return s.record(Exit, status) }

// Transferred records how many bytes a port-forward has transferred from and to the client.
func (s *Session) Transferred(in, out int64) error {
	return s.record(Transferred, fmt.Appendf(nil, "in=%d out=%d", in, out))
}

// Failed returns a channel that is closed when the recording has failed.
func (s *Session) Failed() <-chan struct{} { return s.failed }

// Err returns why the recording has failed, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close stores the last part and returns the error of the recording. It blocks for about three times StoreTimeout at
// most: for the earlier parts, for a slot, and for the last part. Later calls return the same.
func (s *Session) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.space.Broadcast()
	}
	s.mu.Unlock()
	s.wakeUp()
	<-s.done
	return s.Err()
}

// Abort fails the recording with err, which must not be nil. Earlier events are stored, and nothing more is recorded.
// The recording stays without an end, so that a verification reports that it is cut. Call Abort before Close. It does
// not block.
func (s *Session) Abort(err error) {
	s.mu.Lock()
	s.aborted = s.aborted || s.err == nil
	s.failLocked(err)
	s.mu.Unlock()
}

func (s *Session) record(typ Type, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.recorder.cfg.Now().Sub(s.started)
	for {
		if err := s.waitForSpace(); err != nil {
			return err
		}
		if len(p) == 0 {
			return nil
		}
		n := pieceLen(p)
		t = max(t, s.last) // other calls may have been faster
		size := cap(s.events)
		if s.events == nil {
			s.events, s.first = s.recorder.buffer(), t
			s.timer.Reset(partInterval)
		}
		s.events = appendEvents(s.events, t, typ, p[:n])
		s.recorder.memory.Add(int64(cap(s.events) - size))
		p, s.last = p[n:], t
		if s.isFullLocked() {
			s.wakeUp()
		}
	}
}

// isFullLocked reports whether the next part gets no more events.
func (s *Session) isFullLocked() bool {
	return len(s.events) >= partSize || len(s.events) >= smallPart && s.recorder.isMemoryFull()
}

// pieceLen returns the length of the first piece of p. A piece does not end within a character.
func pieceLen(p []byte) int {
	if len(p) <= pieceSize {
		return len(p)
	}
	n := pieceSize
	for n > pieceSize-utf8.UTFMax && !utf8.RuneStart(p[n]) {
		n--
	}
	return n
}

// waitForSpace blocks until an event may be added. The caller has locked s.mu.
func (s *Session) waitForSpace() error {
	for s.err == nil && !s.closed && s.isFullLocked() {
		s.wakeUp() // maxMemory may have been reached only now
		s.space.Wait()
	}
	switch {
	case s.err != nil:
		return s.err
	case s.closed:
		return ErrClosed
	}
	return nil
}

func (s *Session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Session) fail(err error) {
	s.mu.Lock()
	s.failLocked(err)
	s.mu.Unlock()
}

func (s *Session) failLocked(err error) {
	if s.err == nil {
		s.err = err
		close(s.failed)
		s.recorder.cfg.Log.Error("session recording failed", "recording", s.info.ID, "user", s.info.User,
			"cluster", s.info.Cluster, "err", err)
	}
	s.space.Broadcast()
	s.wakeUp()
}

// run stores the parts until the session is closed or has failed.
func (s *Session) run() {
	var (
		writes sync.WaitGroup
		stored [maxInFlight]chan bool // the results of the last writes, by the numbers of the parts
	)
	defer func() {
		writes.Wait()
		s.recorder.memory.Add(-s.removeEvents().size)
	}()
	for range s.wake {
		isDue, isOver := s.next()
		switch {
		case isOver:
			return
		case !isDue:
			continue
		}
		// A stored part proves that all parts before the last maxInFlight were stored, see chain.skipTo.
		before := &stored[s.number%maxInFlight]
		if *before != nil && !<-*before {
			return
		}
		// The events stay in their buffer until there is a slot, so that a session that waits has only one buffer.
		if err := s.recorder.writes.acquire(s.ctx, s.caller); err != nil {
			s.fail(fmt.Errorf("store part %d of recording %s: %w", s.number, s.info.ID, err))
			return
		}
		b := s.removeEvents()
		release := func() {
			s.recorder.memory.Add(-b.size)
			s.recorder.writes.release(s.caller)
		}
		if b.closed && b.err == nil {
			writes.Wait() // an end is stored only after all other parts
			b = s.ending(b)
		}
		if !b.hasPart() {
			release()
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, StoreTimeout)
		number, part := s.part(b)
		result := make(chan bool, 1)
		*before = result
		writes.Go(func() {
			defer cancel()
			result <- s.write(ctx, number, part, release)
		})
		if b.closed || b.err != nil {
			return
		}
	}
}

// next reports whether there is a part to store, and whether nothing more is stored after an error.
func (s *Session) next() (isDue, isOver bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events != nil || s.closed, s.err != nil && (!s.aborted || s.events == nil)
}

// batch has the events of a part.
type batch struct {
	events      []byte // after firstLine bytes
	size        int64  // capacity of events
	first, last time.Duration
	closed      bool
	aborted     bool
	err         error
}

func (b *batch) hasPart() bool { return b.events != nil && (b.err == nil || b.aborted) }

// removeEvents removes the buffered events.
func (s *Session) removeEvents() batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := batch{s.events, int64(cap(s.events)), s.first, s.last, s.closed, s.aborted, s.err}
	s.events = nil
	s.timer.Stop()
	select {
	case <-s.wake: // was for these events
	default:
	}
	s.space.Broadcast()
	return b
}

// part returns the next part: an event of typePart, the events and a signature.
func (s *Session) part(b batch) (number int, part []byte) {
	number = s.number
	s.number++
	line := AppendEvent(make([]byte, 0, firstLine), b.first, typePart, partText(number, s.previous, s.info.ID))
	part = b.events[firstLine-len(line):]
	copy(part, line)
	return number, s.seal(part, b.last)
}

func partText(number int, previous [sha256.Size]byte, id string) []byte {
	return fmt.Appendf(nil, "%d %s %s", number, hex.EncodeToString(previous[:]), id)
}

func signatureText(keyID string, signature []byte) []byte {
	return append([]byte(keyID+" "), base64.StdEncoding.EncodeToString(signature)...)
}

// ending returns the batch with the event that ends the recording. It has no part if the session has failed.
func (s *Session) ending(b batch) batch {
	if b.err = s.Err(); b.err != nil {
		return b
	}
	if b.events == nil {
		b.events, b.first = s.recorder.buffer(), b.last
	}
	b.last = max(b.last, s.recorder.cfg.Now().Sub(s.started))
	b.events = AppendEvent(b.events, b.last, typeEnd, fmt.Appendf(nil, "%d", s.number+1))
	return b
}

// write stores a part, and calls release when the Store has returned. It reuses the memory of part only after a
// success: after an error, the Store or its HTTP client may still read it.
func (s *Session) write(ctx context.Context, number int, part []byte, release func()) (ok bool) {
	err := s.recorder.put(ctx, s.info.ID, number, part, release)
	if err == nil {
		s.recorder.free(part)
		return true
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w; the store of recordings did not answer in %s", err, StoreTimeout)
	}
	s.fail(err)
	return false
}
