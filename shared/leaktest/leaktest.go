// Package leaktest fails the tests of a package that leave goroutines behind, a minute after their end. goleak itself
// waits for less than half a second, which is too short on a busy machine.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is shorter than the idle timeout of HTTP clients, so that Find detects idle connections that no test closes.
const patience = time.Minute

// Main runs the tests of a package and exits. Call it from TestMain.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := Find(func() {}, options...); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "the tests leave goroutines:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Find waits up to a minute until only goroutines of the test program, and those that options ignore, are left. It
// calls closeIdle before each check: a connection may become idle only after its last request has ended.
func Find(closeIdle func(), options ...goleak.Option) error {
	deadline := time.Now().Add(patience)
	for {
		closeIdle()
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}
