package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	errMissing = errors.New("missing")
	errDown    = errors.New("down")
	errDenied  = errors.New("denied")
)

type store struct {
	mu    sync.Mutex
	value string
	err   error
	calls atomic.Int64
}

func (s *store) set(value string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.err = value, err
}

func (s *store) fetch(context.Context, string) (string, error) {
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.err
}

func newCache(s *store, c *testingclock.FakeClock, max int) *Cache[string] {
	return New(Config{
		Name: "test", Max: max, TTL: time.Minute, Negative: 5 * time.Second, Stale: time.Hour, Retry: 2 * time.Second,
		Timeout: time.Second,
		Missing: func(err error) bool { return errors.Is(err, errMissing) },
		Down:    func(err error) bool { return errors.Is(err, errDown) },
		Now:     c.Now, Log: slog.New(slog.DiscardHandler),
	}, s.fetch)
}

func TestSteps(t *testing.T) {
	s, c := &store{}, testingclock.NewFakeClock(time.Unix(1000, 0))
	cache := newCache(s, c, 10)
	steps := []struct {
		what      string
		after     time.Duration
		value     string // at the store
		err       error
		renew     bool
		want      string
		wantErr   error
		wantCalls int64
	}{
		{what: "cold", value: "a", want: "a", wantCalls: 1},
		{what: "warm", value: "b", after: 50 * time.Second, want: "a", wantCalls: 1},
		{what: "over", value: "b", after: 11 * time.Second, want: "b", wantCalls: 2},
		{what: "renewed, however fresh", value: "c", renew: true, want: "c", wantCalls: 3},
		{what: "renewed again too soon", value: "x", after: time.Second, renew: true, want: "c", wantCalls: 3},
		{what: "stale while down", err: errDown, after: 61 * time.Second, want: "c", wantCalls: 4},
		{what: "not asked again at once", err: errDown, after: time.Second, want: "c", wantCalls: 4},
		{what: "asked again", err: errDown, after: 2 * time.Second, want: "c", wantCalls: 5},
		{what: "renewing while down", err: errDown, after: 3 * time.Second, renew: true, want: "c", wantCalls: 6},
		{what: "and again too soon", err: errDown, after: time.Second, renew: true, want: "c", wantCalls: 6},
		{what: "denied is not down", err: errDenied, after: 3 * time.Second, wantErr: errDenied, wantCalls: 7},
		{what: "a refusal is remembered", err: errDown, after: time.Second, wantErr: errDenied, wantCalls: 7},
		{what: "a refused key is not stale", err: errDown, after: 5 * time.Second, wantErr: errDown, wantCalls: 8},
		{what: "up", value: "d", want: "d", wantCalls: 9},
		{what: "deleted", err: errMissing, after: 2 * time.Minute, wantErr: errMissing, wantCalls: 10},
		{what: "missing is remembered", err: errDown, after: 4 * time.Second, wantErr: errMissing, wantCalls: 10},
		{what: "never stale after it was deleted", err: errDown, after: 2 * time.Second, wantErr: errDown, wantCalls: 11},
		{what: "back", value: "e", want: "e", wantCalls: 12},
		{what: "deleted once more", err: errMissing, after: 3 * time.Second, renew: true, wantErr: errMissing, wantCalls: 13},
		{
			what: "missing is remembered by who renews, too", value: "f", after: 4 * time.Second, renew: true,
			wantErr: errMissing, wantCalls: 13,
		},
		{what: "but not for ever", value: "e", after: 2 * time.Second, renew: true, want: "e", wantCalls: 14},
		{what: "stale to the last", err: errDown, after: time.Hour - time.Second, want: "e", wantCalls: 15},
		{what: "and not a second longer", err: errDown, after: 1100 * time.Millisecond, wantErr: errDown, wantCalls: 16},
	}
	for _, st := range steps {
		c.Step(st.after)
		s.set(st.value, st.err)
		var got string
		var err error
		if st.renew {
			got, err = cache.Renew(t.Context(), "k", func(string) bool { return true })
		} else {
			got, err = cache.Get(t.Context(), "k")
		}
		if got != st.want && st.wantErr == nil || !errors.Is(err, st.wantErr) || s.calls.Load() != st.wantCalls {
			t.Fatalf("%s: %q, %v after %d calls; want %q, %v after %d", st.what, got, err, s.calls.Load(), st.want, st.wantErr,
				st.wantCalls)
		}
	}
	if got, want := cache.Stats(), (Stats{Hits: 5, Fetches: 16, StaleHits: 6, Errors: 8, Size: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFull(t *testing.T) {
	s, c := &store{value: "a"}, testingclock.NewFakeClock(time.Unix(1000, 0))
	cache := newCache(s, c, 2)
	for _, key := range []string{"a", "b", "a", "c"} {
		_, _ = cache.Get(t.Context(), key)
	}
	s.set("", errMissing)
	_, _ = cache.Get(t.Context(), "d") // in the LRU of missing keys
	if got, want := cache.Stats(), (Stats{Hits: 1, Fetches: 4, Evicted: 1, Size: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRenewKeepsWhatIsNotOutdated(t *testing.T) {
	s, c := &store{value: "a"}, testingclock.NewFakeClock(time.Unix(1000, 0))
	cache := newCache(s, c, 10)
	_, _ = cache.Get(t.Context(), "k")
	c.Step(10 * time.Second)
	if got, err := cache.Renew(t.Context(), "k", func(v string) bool {
		return v == "older"
	}); got != "a" || err != nil || s.calls.Load() != 1 {
		t.Errorf("%q, %v after %d calls", got, err, s.calls.Load())
	}
}

// TestHangingStore: an expired entry is served while the store hangs, and the late result replaces it.
func TestHangingStore(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(1000, 0))
	asked, answers := make(chan struct{}, 10), make(chan string)
	cache := New(Config{
		Name: "test", Max: 10, TTL: time.Minute, Stale: time.Hour, Retry: 2 * time.Second, Timeout: time.Hour,
		Patience: time.Millisecond,
		Missing:  func(err error) bool { return errors.Is(err, errMissing) },
		Down:     func(error) bool { return true },
		Now:      c.Now, Log: slog.New(slog.DiscardHandler),
	}, func(context.Context, string) (string, error) {
		asked <- struct{}{}
		return <-answers, nil
	})
	first := make(chan string)
	go func() { v, _ := cache.Get(t.Context(), "k"); first <- v }()
	<-asked
	answers <- "a" // no stale entry exists, so the caller waits
	if v := <-first; v != "a" {
		t.Fatalf("cold: %q", v)
	}
	c.Step(2 * time.Minute)
	for _, after := range []time.Duration{0, time.Second, 3 * time.Second} {
		c.Step(after)
		if v, err := cache.Get(t.Context(), "k"); v != "a" || err != nil {
			t.Errorf("while it hangs: %q, %v", v, err)
		}
	}
	<-asked // once: all callers joined one fetch
	if got, want := cache.Stats(), (Stats{Fetches: 2, StaleHits: 3, Size: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	answers <- "b"
	for v := ""; v != "b"; {
		v, _ = cache.Get(t.Context(), "k") // until the fetch has ended
	}
	c.Step(40 * time.Second)
	if v, err := cache.Get(t.Context(), "k"); v != "b" || err != nil || len(asked) != 0 {
		t.Errorf("afterwards: %q, %v, asked %d times more", v, err, len(asked))
	}
}

// Without a usable entry, callers must not each wait for a store that hangs. A store that refuses must be asked again,
// also if it or this machine is slow: it may be back.
func TestHung(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(1000, 0))
	var calls atomic.Int64
	down, hangs, asked, answers := true, false, make(chan struct{}), make(chan string)
	cache := New(Config{
		Max: 10, TTL: time.Minute, Stale: time.Hour, Patience: time.Millisecond, Retry: 10 * time.Second, Hung: time.Minute,
		Timeout: 10 * time.Second,
		Missing: func(error) bool { return false },
		Down:    func(error) bool { return true },
		Now:     c.Now, Log: slog.New(slog.DiscardHandler),
	}, func(context.Context, string) (string, error) {
		calls.Add(1)
		if hangs {
			asked <- struct{}{}
			return <-answers, nil
		}
		c.Step(10 * time.Second) // longer than Patience
		if down {
			return "", fmt.Errorf("%w: %w", errDown, context.DeadlineExceeded)
		}
		return "", errDenied
	})
	get := func(what string, after time.Duration, want error, asked int64) {
		t.Helper()
		c.Step(after)
		if _, err := cache.Get(t.Context(), "k"); !errors.Is(err, want) || calls.Load() != asked {
			t.Fatalf("%s: %v after %d calls; want %v after %d", what, err, calls.Load(), want, asked)
		}
	}
	get("cold", 0, errDown, 1)
	get("at once", 0, errDown, 1)
	get("within Retry", 9*time.Second, errDown, 1)
	get("after it", 2*time.Second, errDown, 2)
	hangs = true
	c.Step(11 * time.Second)
	if _, err := cache.Get(t.Context(), "k"); !errors.Is(err, errDown) { // blocks forever if it waits for the store
		t.Fatal(err)
	}
	<-asked
	get("and not again", 5*time.Second, errDown, 3)
	answers <- "a"
	for v := ""; v != "a"; {
		v, _ = cache.Get(t.Context(), "k") // until the fetch has ended
	}
	hangs, down = false, false
	if v, err := cache.Get(t.Context(), "other"); err == nil {
		t.Errorf("%q", v)
	}
	before := calls.Load()
	if _, err := cache.Get(t.Context(), "other"); !errors.Is(err, errDenied) || calls.Load() != before+1 {
		t.Errorf("one that refuses is asked %d times, %v", calls.Load()-before, err)
	}
}

// TestRefreshOfAHangingStore: Refresh does not wait for a store that hangs if a stale entry can be served.
func TestRefreshOfAHangingStore(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(1000, 0))
	asked, answers := make(chan struct{}, 10), make(chan string, 1)
	cache := New(Config{
		Max: 10, TTL: time.Minute, Stale: time.Hour, Retry: 2 * time.Second, Timeout: time.Hour, Patience: time.Millisecond,
		Now: c.Now, Log: slog.New(slog.DiscardHandler),
	}, func(context.Context, string) (string, error) {
		asked <- struct{}{}
		return <-answers, nil
	})
	answers <- "a"
	if v, err := cache.Refresh(t.Context(), "k"); v != "a" || err != nil {
		t.Fatalf("cold: %q, %v", v, err)
	}
	c.Step(3 * time.Second)
	for range 2 {
		if v, err := cache.Refresh(t.Context(), "k"); v != "a" || err != nil {
			t.Errorf("while it hangs: %q, %v", v, err)
		}
	}
	answers <- "b"
	for v := ""; v != "b"; {
		v, _ = cache.Get(t.Context(), "k") // until the fetch has ended
	}
	if len(asked) != 2 {
		t.Errorf("asked %d times, want once more", len(asked))
	}
}

// TestLateFlight: the result of an older fetch does not replace the result of a newer one.
func TestLateFlight(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(1000, 0))
	asked, answers := make(chan struct{}), make(chan string)
	cache := New(Config{Max: 10, TTL: time.Minute, Timeout: time.Hour, Now: c.Now},
		func(context.Context, string) (string, error) {
			asked <- struct{}{}
			return <-answers, nil
		})
	late, newer := make(chan string), make(chan string)
	go func() { v, _ := cache.Get(t.Context(), "k"); late <- v }()
	<-asked
	c.Step(time.Second)
	go func() { v, _ := cache.Refresh(t.Context(), "k"); newer <- v }()
	<-asked
	// Either fetch may get either answer. The answer of the newer one must stay.
	answers <- "a"
	answers <- "b"
	want := ""
	for range 2 {
		select {
		case want = <-newer:
		case <-late:
		}
	}
	if got, err := cache.Get(t.Context(), "k"); got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestFrozenFlight: callers do not join a fetch that started before the process was frozen, because it may never end.
func TestFrozenFlight(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(1000, 0))
	asked, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	cache := New(Config{Max: 10, TTL: time.Minute, Timeout: time.Minute, Now: c.Now},
		func(context.Context, string) (string, error) {
			if calls.Add(1) == 1 {
				close(asked)
				<-release
				return "old", nil
			}
			return "new", nil
		})
	left := make(chan struct{})
	go func() { _, _ = cache.Get(t.Context(), "k"); close(left) }()
	<-asked
	c.Step(time.Hour)
	if v, err := cache.Get(t.Context(), "k"); v != "new" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	close(release)
	<-left
	if v, err := cache.Get(t.Context(), "k"); v != "new" || err != nil || len(cache.flying) > 0 {
		t.Errorf("%q, %v; %d flights are left", v, err, len(cache.flying))
	}
}

func TestOneFlight(t *testing.T) {
	release := make(chan struct{})
	var calls atomic.Int64
	cache := New(Config{Max: 10, TTL: time.Minute, Timeout: time.Minute}, func(context.Context, string) (string, error) {
		calls.Add(1)
		<-release
		return "v", nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { _, err := cache.Get(ctx, "k"); first <- err }()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if v, err := cache.Get(t.Context(), "k"); v != "v" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
	cancel() // the caller that may have started the fetch leaves; the others still get their answer
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	close(release)
	wg.Wait()
	if calls.Load() > 2 { // 2 if the others came after it had left
		t.Errorf("%d calls", calls.Load())
	}
}

func TestBounded(t *testing.T) {
	s, c := &store{value: "a"}, testingclock.NewFakeClock(time.Unix(1000, 0))
	cache := newCache(s, c, 10)
	for i := range 1000 {
		_, _ = cache.Get(t.Context(), strconv.Itoa(i))
	}
	s.set("", errMissing)
	for i := range 1000 {
		_, _ = cache.Get(t.Context(), "missing "+strconv.Itoa(i))
	}
	if n, m := cache.entries.Len(), cache.negative.Len(); n != 10 || m != 10 {
		t.Errorf("%d entries, and %d of what is missing", n, m)
	}
}

func BenchmarkWarm(b *testing.B) {
	s := &store{value: "a"}
	cache := newCache(s, testingclock.NewFakeClock(time.Unix(1000, 0)), 10)
	for b.Loop() {
		if _, err := cache.Get(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}
