// Package waittest lets a test wait for a condition, in place of a fixed sleep. A wait fails the test after [Patience].
// In a bubble of testing/synctest it uses the bubble's clock.
package waittest

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"
)

// Patience is how long a wait lasts at most: far more than a busy machine needs.
const Patience = 5 * time.Minute

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 100 * time.Millisecond
	// The pause after a slow check, such as a run of kubectl, is a multiple of its duration. So waits leave most of the
	// processors to what they wait for.
	slowPauses = 3
	slowPause  = time.Second
)

// RunParallel makes 8 parallel tests run at once, unless -parallel is given. Call it from TestMain of a package whose
// parallel tests wait for deadlines and compute little.
func RunParallel() { _ = flag.Set("test.parallel", "8") }

var errFalse = errors.New("the condition is false")

// Until waits until ok returns true, or fails the test after Patience. Call it from the test's own goroutine.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	UntilNoError(tb, what, func(context.Context) error {
		if ok() {
			return nil
		}
		return errFalse
	})
}

// UntilNoError waits until check returns nil, or fails the test after Patience. Call it from the test's own goroutine
// or its cleanup functions.
func UntilNoError(tb testing.TB, what string, check func(ctx context.Context) error) {
	tb.Helper()
	// A cleanup function runs after the test's context has ended.
	if err := Poll(context.WithoutCancel(tb.Context()), check); err != nil {
		tb.Fatalf("%s: not within %v: %v", what, Patience, err)
	}
}

// Poll waits until check returns nil, and returns its last error after Patience or when ctx ends. It is for goroutines,
// which may not fail the test at once.
func Poll(ctx context.Context, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for pause := firstPause; ; pause = min(pause+pause/4, lastPause) {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(max(pause, min(slowPauses*time.Since(began), slowPause))):
		case <-ctx.Done():
			return err
		}
	}
}
