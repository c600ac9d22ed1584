// Package heap bounds the memory that Go's garbage collector adds to the memory in use.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A heap grows by maxGrowth bytes between two collections, but by minPercent and at most by maxPercent, Go's default.
const (
	maxGrowth  = 16 << 20
	minPercent = 15
	maxPercent = 100
)

// BoundGrowth sets GOGC after each collection, from then on, because Go's collector lets a heap double by default.
// BoundGrowth does nothing if the environment sets GOGC. Only programs call it, once.
func BoundGrowth() {
	if os.Getenv("GOGC") == "" {
		runtime.SetFinalizer(&collection{percent: maxPercent}, (*collection).end)
	}
}

// collection becomes unreachable at once, so that its finalizer runs after the next collection. Smaller objects share
// memory with others, which delays their finalizers.
type collection struct {
	percent int
	_       [2]int64
}

func (c *collection) end() {
	if percent := percentFor(inUse()); percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
	runtime.SetFinalizer(c, (*collection).end)
}

// inUse returns the bytes to which GOGC refers.
func inUse() uint64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	var sum uint64
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}

// percentFor rounds down, so that small changes of the heap change nothing: a change of GOGC stops the program briefly.
func percentFor(inUse uint64) int {
	const step = 15
	percent := 100 * maxGrowth / max(inUse, 1) / step * step
	return int(min(max(percent, minPercent), maxPercent))
}
