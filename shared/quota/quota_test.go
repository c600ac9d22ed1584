package quota

import (
	"sync"
	"testing"
)

func TestQuotaLimitsCallersAndTotal(t *testing.T) {
	q := New(3, 2)
	acquire := func(caller string, want Limit) func() {
		t.Helper()
		release, got := q.Acquire(caller)
		if got != want {
			t.Fatalf("%s: limit %q, want %q", caller, got, want)
		}
		return release
	}
	release := acquire("a", None)
	acquire("a", None)
	acquire("a", Each)
	acquire("b", None)
	acquire("b", All)
	release()
	release() // must not release a second slot
	if q.InUse() != 2 {
		t.Errorf("%d slots are in use, want 2", q.InUse())
	}
	acquire("a", None)
	acquire("a", Each)
	acquire("b", All)

	unlimited := New(0, 0)
	for range 1000 {
		if _, reached := unlimited.Acquire("a"); reached != None {
			t.Fatalf("a quota without limits reached the limit %q", reached)
		}
	}
}

// TestQuotaForgetsCallers: the memory of a bridge must not grow with the number of callers it has ever had.
func TestQuotaForgetsCallers(t *testing.T) {
	q := New(0, 0)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 100 {
				release, _ := q.Acquire(string(rune('a' + i%8)))
				release()
			}
		})
	}
	wg.Wait()
	if q.InUse() != 0 || len(q.byCaller) != 0 {
		t.Errorf("%d slots are in use, by %v", q.InUse(), q.byCaller)
	}
}
