package lambdahttp

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

// TestInvokeAllocations fails if a call of a function allocates more than before, so that all calls became slower. The
// limits are a third above the figures of this version.
func TestInvokeAllocations(t *testing.T) {
	const (
		calls      = 200
		maxObjects = 370
		maxBytes   = 24 << 10
	)
	object := strings.Repeat("x", 1000)
	f := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, object)
	}), Options{})
	event := payload(t, "alb-multi")
	invoke := func() {
		if out, err := f.Invoke(t.Context(), event); err != nil || len(out) < len(object) {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
	}
	objects, bytes := alloctest.PerCall(calls, invoke)
	if objects > maxObjects {
		t.Errorf("a call makes %.0f allocations, want at most %d", objects, maxObjects)
	}
	if bytes > maxBytes {
		t.Errorf("a call allocates %.0f bytes, want at most %d", bytes, maxBytes)
	}
}
