package limits

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func attempt(b *Breaker, o Outcome) bool {
	done, _ := b.Allow()
	if done == nil {
		return false
	}
	done(o)
	return true
}

func openBreaker(t *testing.T) *Breaker {
	t.Helper()
	b := &Breaker{}
	for range failuresToOpen {
		if !attempt(b, Failure) {
			t.Fatal("it opened too early")
		}
	}
	if !b.isOpen() || attempt(b, Success) {
		t.Fatal("it is closed after failures in a row")
	}
	return b
}

// Calls to a member that cannot be reached would each wait for a connection, and use up what all members share.
func TestBreakerTriesWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBreaker(t)
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			time.Sleep(pause*time.Second - time.Millisecond)
			if done, retryAfter := b.Allow(); done != nil || retryAfter != time.Second {
				t.Fatalf("a trial after less than %d s; retry after %v", pause, retryAfter)
			}
			time.Sleep(time.Millisecond)
			done, _ := b.Allow()
			if done == nil {
				t.Fatalf("no trial after %d s", pause)
			}
			if attempt(b, Success) {
				t.Fatal("two trials at the same time")
			}
			done(Failure)
		}
		time.Sleep(lastPause)
		if !attempt(b, Success) || b.isOpen() {
			t.Fatal("a successful trial does not close it")
		}
		openBreaker(t)
	})
}

// Callers must not be able to switch a healthy member off for others, for instance by slow paths.
func TestBreakerIgnoresWhatCallersChoose(t *testing.T) {
	b := &Breaker{}
	for range 10 * failuresToOpen {
		attempt(b, Ignored)
	}
	for range failuresToOpen {
		for range failuresToOpen - 1 {
			attempt(b, Failure)
		}
		attempt(b, Success)
	}
	if b.isOpen() {
		t.Fatal("it is open without failures in a row")
	}
}

// A trial on a slow path must neither close the breaker of a dead member, nor delay the use of one that is back.
func TestSlowTrialDelaysTheNextByOnePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBreaker(t)
		time.Sleep(firstPause)
		slow, _ := b.Allow()
		if slow == nil || attempt(b, Success) {
			t.Fatal("not one trial alone after the pause")
		}
		time.Sleep(firstPause)
		if !attempt(b, Success) || b.isOpen() {
			t.Fatal("the slow trial keeps the next one back")
		}
		slow(Ignored)
		slow, _ = b.Allow()
		slow(Ignored)
		if b.isOpen() {
			t.Fatal("the late end of a slow trial opens it again")
		}
	})
}

// A member that accepts connections and never answers fails no connection. The gateway's own probes find it.
func TestProbesOpenAndCloseBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{}
		b.Probe(Ignored)
		if b.isOpen() {
			t.Fatal("a canceled probe opens it")
		}
		b.Probe(Failure)
		if !attempt(b, Ignored) || attempt(b, Success) {
			t.Fatal("want one trial after a failed probe")
		}
		for range 10 {
			b.Probe(Failure)
		}
		time.Sleep(lastPause - time.Second)
		if attempt(b, Success) {
			t.Fatal("a trial before the end of the pause, which failed probes made longer")
		}
		b.Probe(Success)
		if b.isOpen() || !attempt(b, Success) {
			t.Fatal("a successful probe does not close it")
		}
	})
}

// A process learns twice of its own failed probe: at once, and when the stored condition comes back.
func TestSuspectKeepsThePauseOfOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBreaker(t)
		for range 10 {
			b.Suspect()
		}
		time.Sleep(firstPause)
		if !attempt(b, Success) {
			t.Fatal("no trial after the first pause")
		}
	})
}

// A process that serves one call at a time would be occupied by trials of a member that does not answer.
func TestSuspendedBreakerHasNoTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{}
		early, _ := b.Allow()
		b.Suspend()
		early(Success)
		for range 10 {
			if done, retryAfter := b.Allow(); done != nil || retryAfter != 0 {
				t.Fatalf("a trial, or one after %v", retryAfter)
			}
			b.Probe(Failure)
			time.Sleep(10 * lastPause)
		}
		b.Probe(Success)
		if b.isOpen() || !attempt(b, Success) {
			t.Fatal("a successful probe does not close it")
		}
	})
}

// Only one call may wait for a dead member at a time, however many arrive together.
func TestBreakerAllowsOneTrialAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBreaker(t)
		time.Sleep(firstPause)
		var (
			wg     sync.WaitGroup
			mu     sync.Mutex
			trials []func(Outcome)
		)
		for range 100 {
			wg.Go(func() {
				if done, _ := b.Allow(); done != nil {
					mu.Lock()
					defer mu.Unlock()
					trials = append(trials, done)
				}
			})
		}
		wg.Wait()
		if len(trials) != 1 {
			t.Fatalf("%d trials, want 1", len(trials))
		}
		trials[0](Success)
	})
}
