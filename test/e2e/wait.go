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

// WaitForValue waits until get returns want.
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

// Within reports whether ok returns true within Patience. Use it where the test prints its own failure.
func Within(t *testing.T, ok func() bool) bool {
	t.Helper()
	return waittest.Poll(context.WithoutCancel(t.Context()), func(context.Context) error {
		if ok() {
			return nil
		}
		return errNotYet
	}) == nil
}

// Idle waits for d. It is for tests of streams that must survive silence, and for effects that cannot be observed.
func Idle(d time.Duration) { <-time.After(d) }
