package fleet_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetLarge fails if lists, or the initial events of watches, are buffered.
func TestFleetLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	const each, size = 6_000, 8 << 10 // objects of each member, and bytes of each object
	padding := strings.Repeat("x", size)
	large := func(member string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Query().Get("watch") != "" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			out := bufio.NewWriter(w)
			_, _ = io.WriteString(out, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`)
			for i := range each {
				_, _ = fmt.Fprintf(out, `%s{"metadata":{"name":"%s-%d","namespace":"x","resourceVersion":"7"},"spec":{"x":"%s"}}`,
					strings.Repeat(",", min(i, 1)), member, i, padding)
			}
			_, _ = io.WriteString(out, "]}\n")
			_ = out.Flush()
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{FleetDeadline: time.Minute}, large("a"), large("b"))
	for name, tt := range map[string]struct {
		query string
		once  string // the text that each object has once
	}{
		"a list": {"", `"spec":`},
		"a watch": {"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			`"type":"ADDED"`},
	} {
		t.Run(name, func(t *testing.T) {
			most := measurePeakMemory(t)
			resp := h.Do("GET", "/fleet/api/v1/pods"+tt.query, nil, "")
			objects, bytes := 0, 0
			for lines := bufio.NewReader(resp.Body); objects < 2*each; {
				part, err := lines.ReadString('}')
				objects, bytes = objects+strings.Count(part, tt.once), bytes+len(part)
				if err != nil {
					t.Fatalf("%v after %d objects", err, objects)
				}
			}
			if most := most(); bytes < 2*each*size || most > bytes/3 {
				t.Errorf("%d MB needed %d MB of memory", bytes>>20, most>>20)
			} else {
				t.Logf("%d MB needed %d MB of memory", bytes>>20, most>>20)
			}
		})
	}
}

// measurePeakMemory starts to measure the memory in use. The returned function returns the highest increase in bytes.
// Meanwhile garbage is collected early: otherwise, its amount would depend on what earlier tests of the process left.
func measurePeakMemory(t *testing.T) func() int {
	t.Helper()
	normal := debug.SetGCPercent(10)
	inUse := func() int {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return int(sample[0].Value.Uint64())
	}
	runtime.GC()
	before, most := inUse(), 0
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.Tick(5 * time.Millisecond); ; {
			select {
			case <-end:
				return
			case <-tick:
				most = max(most, inUse()-before)
			}
		}
	}()
	return func() int {
		close(end)
		<-ended
		debug.SetGCPercent(normal)
		return most
	}
}
