package heap

import "testing"

// TestPercentFor fails if a large heap could double, or if a small one were collected more often than by default.
func TestPercentFor(t *testing.T) {
	for inUse, want := range map[uint64]int{
		0: 100, 10 << 20: 100, 16 << 20: 100, 20 << 20: 80, 32 << 20: 50, 80 << 20: 20, 128 << 20: 20, 4 << 30: 20,
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
