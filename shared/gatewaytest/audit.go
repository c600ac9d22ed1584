package gatewaytest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// AuditLog records audit events. It is safe for concurrent use.
type AuditLog struct {
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer. Each call is one event.
func (l *AuditLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

// Events blocks until n events are recorded. It returns all events since its last call, and removes them.
func (l *AuditLog) Events(tb testing.TB, n int) []audit.Event {
	tb.Helper()
	var lines []string
	waittest.Until(tb, fmt.Sprintf("%d audit events are recorded", n), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.lines) < n {
			return false
		}
		lines, l.lines = l.lines, nil
		return true
	})
	events := make([]audit.Event, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &events[i]); err != nil {
			tb.Fatal(err)
		}
	}
	return events
}
