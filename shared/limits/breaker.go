package limits

import (
	"sync"
	"time"
)

// Parameters of a Breaker.
const (
	failuresToOpen = 5
	// firstPause and lastPause bound the time between two trials of an open Breaker. Each failed trial doubles it.
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// Outcome is the result of a call that a Breaker allowed.
type Outcome int

// The outcomes.
const (
	// Ignored is a call that proves nothing: the caller canceled it, or chose a slow path.
	Ignored Outcome = iota
	// Success is a call that the member answered.
	Success
	// Failure is a call for which there was no connection, or an unanswered probe.
	Failure
)

// Breaker is a circuit breaker for one member cluster. It opens after failures in a row, and then allows one trial in
// each of growing pauses. A success closes it. The zero value is closed. It is safe for concurrent use.
type Breaker struct {
	// Now returns the current time; nil means time.Now.
	Now func() time.Time

	mu       sync.Mutex
	failures int // in a row
	pause    time.Duration
	trialAt  time.Time // the next trial may begin; zero while closed
	// isSuspended means that no call is a trial.
	isSuspended bool
}

// Allow reports whether a call may begin. If so, call done once. Otherwise done is nil, and retryAfter is the time
// until the next trial, at least a second. It is 0 while the Breaker is suspended. A trial that hangs delays the next
// by one pause only.
func (b *Breaker) Allow() (done func(Outcome), retryAfter time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isSuspended {
		return nil, 0
	}
	if b.trialAt.IsZero() {
		return func(o Outcome) { b.report(o, false) }, 0
	}
	now := b.now()
	if wait := b.trialAt.Sub(now); wait > 0 {
		return nil, max(wait, time.Second)
	}
	b.trialAt = now.Add(max(b.pause, firstPause))
	return func(o Outcome) { b.report(o, true) }, 0
}

// Probe reports the outcome of a probe, which begins without Allow. After a failed probe, the next call is a trial.
// Further failures make the pauses longer.
func (b *Breaker) Probe(o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case o == Success:
		b.close()
	case o == Failure && b.trialAt.IsZero():
		b.trialAt = b.now()
	case o == Failure:
		b.open()
	}
}

// Suspect opens a closed Breaker so that the next call is a trial, without a pause before it.
func (b *Breaker) Suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trialAt.IsZero() {
		b.trialAt = b.now()
	}
}

// Suspend opens the Breaker without trials, until a probe succeeds. It is for a process that a trial would occupy.
func (b *Breaker) Suspend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isSuspended = true
}

func (b *Breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isSuspended || !b.trialAt.IsZero()
}

func (b *Breaker) report(o Outcome, trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := !b.trialAt.IsZero()
	switch {
	case b.isSuspended: // the call began before
	case o == Success:
		b.close()
	case o == Failure && open && trial:
		b.open()
	case o == Failure && !open:
		if b.failures++; b.failures >= failuresToOpen {
			b.open()
		}
	}
}

func (b *Breaker) open() {
	b.pause = min(max(2*b.pause, firstPause), lastPause)
	b.trialAt = b.now().Add(b.pause)
}

func (b *Breaker) close() { b.failures, b.pause, b.trialAt, b.isSuspended = 0, 0, time.Time{}, false }

func (b *Breaker) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}
