package heap

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestBoundGrowth fails if a program with a large heap kept Go's default, with which its memory could double.
func TestBoundGrowth(t *testing.T) {
	t.Setenv("GOGC", "")
	BoundGrowth()
	live := make([]byte, 64<<20)
	percent := func() uint64 {
		samples := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(samples)
		return samples[0].Value.Uint64()
	}
	waittest.Until(t, "GOGC is low for a large heap", func() bool {
		runtime.GC()
		return percent() <= 25
	})
	runtime.KeepAlive(live)
	waittest.Until(t, "GOGC is the default for a small heap", func() bool {
		runtime.GC()
		return percent() == maxPercent
	})
}

// TestPercentFor fails if a large heap could double, or if a small one were collected more often than by default.
func TestPercentFor(t *testing.T) {
	for inUse, want := range map[uint64]int{
		0: 100, 10 << 20: 100, 16 << 20: 90, 20 << 20: 75, 32 << 20: 45, 64 << 20: 15, 80 << 20: 15, 128 << 20: 15,
		4 << 30: 15,
	} {
		if got := percentFor(inUse); got != want {
			t.Errorf("%d MB: %d, want %d", inUse>>20, got, want)
		}
	}
}

// TestInUse fails if a metric were renamed, so that GOGC stayed as it is.
func TestInUse(t *testing.T) {
	if n := inUse(); n < 64<<10 || n > 1<<30 {
		t.Errorf("%d bytes in use", n)
	}
}
