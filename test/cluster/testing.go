package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Start starts a set of clusters for a test and stops it when the test ends. The test fails if they do not start, or
// leave something behind.
func Start(tb testing.TB, o Options) *Set {
	tb.Helper()
	s, err := New(tb.Context(), o)
	if err != nil {
		tb.Fatalf("start clusters: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("stop clusters: %v", err)
		}
	})
	return s
}

// Main runs a package's tests on one set of clusters and returns the exit code. It calls use before the tests run.
// Tests that search for leaked goroutines must call goleak.IgnoreCurrent in use.
func Main(m *testing.M, o Options, use func(*Set)) int {
	s, err := New(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start clusters:", err)
		return 1
	}
	use(s)
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop clusters:", err)
		return max(code, 1)
	}
	return code
}
