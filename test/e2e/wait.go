package e2e

import (
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// Patience bounds every wait of these tests. It is much longer than any step takes.
const Patience = waittest.Patience

// Eventually waits until ok returns true. It fails the test after Patience.
func Eventually(t *testing.T, ok func() bool) {
	t.Helper()
	waittest.Until(t, "the condition of the line above", ok)
}

// WaitForValue waits until get returns want, and logs the last value when the test fails.
func WaitForValue(t *testing.T, want string, get func() string) {
	t.Helper()
	var got string
	defer func() {
		if got != want {
			t.Logf("it is %q, want %q", got, want)
		}
	}()
	Eventually(t, func() bool { got = get(); return got == want })
}

// Within waits until ok returns true and reports whether it did so within Patience, for tests that describe the
// difference themselves.
func Within(t *testing.T, ok func() bool) bool {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline.C:
			return false
		}
	}
	return true
}

// Idle lets a time pass in which nothing happens, for tests of what survives that time. No other condition can replace
// it.
func Idle(d time.Duration) { <-time.After(d) }
