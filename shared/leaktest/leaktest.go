// Package leaktest fails the tests of a package that leave goroutines behind. What ends a moment after its test is waited for: goleak
// itself waits for less than half a second, and a busy machine needs more.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is less than an HTTP client keeps a connection that nobody uses, so that one which nobody closes is found.
const patience = time.Minute

// Main runs the tests of a package and ends the program; it is for TestMain.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := Find(options...); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "the tests leave goroutines:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Find waits until no goroutine is left but those of the test program, and those that options ignore. It returns what is left after a
// minute.
func Find(options ...goleak.Option) error {
	deadline := time.Now().Add(patience)
	for {
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}
