package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// Patience bounds every wait of these tests. It is much longer than any step needs.
const Patience = waittest.Patience

// WaitForValue waits until get returns want. A failure names the last value.
func WaitForValue(t *testing.T, want string, get func() string) {
	t.Helper()
	waittest.UntilNoError(t, "wait for a value", func(context.Context) error {
		if got := get(); got != want {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
}

var errNotYet = errors.New("the condition does not hold")

// Within waits until ok returns true and reports whether it did so within Patience. Use it where the test prints its
// own failure.
func Within(t *testing.T, ok func() bool) bool {
	t.Helper()
	return waittest.Poll(context.WithoutCancel(t.Context()), func(context.Context) error {
		if ok() {
			return nil
		}
		return errNotYet
	}) == nil
}

// Idle lets a time pass in which nothing happens, for tests of what survives that time. No other condition can replace
// it.
func Idle(d time.Duration) { <-time.After(d) }
