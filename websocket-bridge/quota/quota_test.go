package quota

import (
	"sync"
	"testing"
)

func TestQuota(t *testing.T) {
	q := New(3, 2)
	take := func(caller string, want Limit) func() {
		t.Helper()
		back, got := q.Take(caller)
		if got != want {
			t.Fatalf("%s: limit %q, want %q", caller, got, want)
		}
		return back
	}
	first := take("a", None)
	take("a", None)
	take("a", Each)
	take("b", None)
	take("b", All)
	first()
	first() // no second place
	if q.Held() != 2 {
		t.Errorf("%d are held, want 2", q.Held())
	}
	take("a", None)
	take("a", Each)
	take("b", All)

	none := New(0, 0)
	for range 1000 {
		if _, reached := none.Take("a"); reached != None {
			t.Fatalf("no limit is %q", reached)
		}
	}
}

// TestNothingIsKept holds: of callers who come and go at once, none is remembered.
func TestNothingIsKept(t *testing.T) {
	q := New(0, 0)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 100 {
				back, _ := q.Take(string(rune('a' + i%8)))
				back()
			}
		})
	}
	wg.Wait()
	if q.Held() != 0 || len(q.holds) != 0 {
		t.Errorf("%d are held, by %v", q.Held(), q.holds)
	}
}
