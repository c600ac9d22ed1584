package waittest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Buffer collects output for a test that reads it meanwhile. It is safe for concurrent use.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns everything that was written and not reset.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Reset empties the buffer.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}

// WaitFor waits until the buffer contains text. It fails the test, with what the buffer contains, after Patience.
func (b *Buffer) WaitFor(tb testing.TB, text string) {
	tb.Helper()
	UntilNoError(tb, "waiting for output", func(context.Context) error {
		if got := b.String(); !strings.Contains(got, text) {
			return fmt.Errorf("no %q in %q", text, got)
		}
		return nil
	})
}
