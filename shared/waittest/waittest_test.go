package waittest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A wait must not end before its condition is true, nor last longer than one pause after it.
func TestUntilEndsWithCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, ready := time.Now(), time.Now().Add(42*time.Second)
		Until(t, "condition", func() bool { return time.Now().After(ready) })
		if lasted := time.Since(start); lasted < 42*time.Second || lasted > 42*time.Second+lastPause {
			t.Errorf("the wait lasted %v", lasted)
		}
	})
}

// TestUntilNoErrorFailsAfterPatience fails if a wait for an impossible condition never ends, or lacks an explanation.
func TestUntilNoErrorFailsAfterPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start, done := &recorder{TB: t}, time.Now(), make(chan struct{})
		var last context.Context
		go func() {
			defer close(done)
			UntilNoError(r, "pods", func(ctx context.Context) error { last = ctx; return errors.New("none runs") })
		}()
		<-done
		if lasted := time.Since(start); lasted != Patience {
			t.Errorf("the wait lasted %v", lasted)
		}
		if !strings.Contains(r.failure, "pods: ") || !strings.Contains(r.failure, "none runs") {
			t.Errorf("failure %q", r.failure)
		}
		if last.Err() == nil {
			t.Error("the context of the check has not ended")
		}
	})
}

// TestWaitInCleanup fails if a cleanup function, which runs after the test's context has ended, cannot wait.
func TestWaitInCleanup(t *testing.T) {
	t.Cleanup(func() {
		var tries int
		UntilNoError(t, "third try", func(ctx context.Context) error {
			if tries++; tries < 3 {
				return errors.New("too early")
			}
			return ctx.Err()
		})
	})
}

// TestBufferWaitsForText fails if a test does not see output that another goroutine writes.
func TestBufferWaitsForText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Buffer
		go func() {
			for _, part := range []string{"listening on ", "127.0.0.1\n"} {
				time.Sleep(time.Second)
				_, _ = b.Write([]byte(part))
			}
		}()
		b.WaitFor(t, "listening on 127.0.0.1")
		if b.Reset(); b.String() != "" {
			t.Errorf("after Reset: %q", b.String())
		}
	})
}
