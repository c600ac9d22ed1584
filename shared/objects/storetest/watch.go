package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

var errEnough = errors.New("seen enough")

func watchN(t *testing.T, st objects.Store, prefix string, from uint64, n int) []objects.Event {
	t.Helper()
	var got []objects.Event
	err := st.Watch(t.Context(), prefix, from, func(e objects.Event) error {
		got = append(got, e)
		if len(got) == n {
			return errEnough
		}
		return nil
	}, nil)
	if !errors.Is(err, errEnough) {
		t.Fatalf("watch %s from %d: %v after %d events", prefix, from, err, len(got))
	}
	return got
}

func showEvent(e objects.Event) string {
	return fmt.Sprintf("%s %s before %.40q(%d)", e.Type, show(e.Object), e.Previous, len(e.Previous))
}

func (s suite) watch(t *testing.T) {
	open := s.c.New(t)
	st := open()
	events := make(chan objects.Event)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { // watches the empty store, like another process
		err := open().Watch(ctx, "", 0, func(e objects.Event) error { events <- e; return nil }, nil)
		storesuite.WantError(t, "an ended watch", err, context.Canceled)
	})
	big := strings.Repeat("B", objects.MaxValue)
	a := mustCreate(t, st, "things/a", "1")
	a = mustUpdate(t, st, "things/a", big, a.Revision)
	mustCreate(t, st, "other/b", "")
	a = mustUpdate(t, st, "things/a", strings.ToLower(big), a.Revision)
	mustDelete(t, st, "things/a", a.Revision)
	mustCreate(t, st, "things/a", "again")
	want := []string{
		`CREATED "things/a"="1"(1) 1/1 before ""(0)`,
		fmt.Sprintf(`UPDATED "things/a"="%.40s"(%d) 1/2 before "1"(1)`, big, len(big)),
		`CREATED "other/b"=""(0) 3/3 before ""(0)`,
		fmt.Sprintf(`UPDATED "things/a"="%.40s"(%d) 1/4 before "%.40s"(%[2]d)`, strings.ToLower(big), len(big), big),
		fmt.Sprintf(`DELETED "things/a"="%.40s"(%d) 1/5 before "%.40[1]s"(%[2]d)`, strings.ToLower(big), len(big)),
		`CREATED "things/a"="again"(5) 6/6 before ""(0)`,
	}
	for i, w := range want {
		if got := showEvent(<-events); got != w {
			t.Errorf("event %d is %s, want %s", i+1, got, w)
		}
	}
	cancel()
	wg.Wait()
	// A later watch from any revision returns the same events.
	for from := range len(want) {
		for i, e := range watchN(t, open(), "", uint64(from), len(want)-from) {
			if got := showEvent(e); got != want[from+i] {
				t.Errorf("from %d: event is %s, want %s", from, got, want[from+i])
			}
		}
	}
}

func (s suite) watchPrefix(t *testing.T) {
	open := s.c.New(t)
	st := open()
	mustCreate(t, st, "things/a", "1")
	mustCreate(t, st, "thingsnot/b", "1")
	mustCreate(t, st, "things/ab", "1")
	for prefix, want := range map[string][]string{
		"things/":   {"things/a", "things/ab"},
		"things/ab": {"things/ab"},
		"things":    {"things/a", "thingsnot/b", "things/ab"},
		"":          {"things/a", "thingsnot/b", "things/ab"},
	} {
		var got []string
		for _, e := range watchN(t, st, prefix, 0, len(want)) {
			got = append(got, e.Object.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("watch %q: %v, want %v", prefix, got, want)
		}
	}
	// Progress is reported without events, too, and is never ahead of the events.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last, seen atomic.Uint64
	another := open()
	err := st.Watch(ctx, "nothing/", 3, func(e objects.Event) error {
		seen.Store(e.Object.Revision)
		return nil
	}, func(rev uint64) {
		if rev < last.Load() {
			t.Errorf("progress went back from %d to %d", last.Load(), rev)
		}
		switch last.Store(rev); rev {
		case 3:
			if _, err := another.Create(ctx, "things/c", nil); err != nil {
				t.Error(err)
			}
		case 4:
			if _, err := another.Create(ctx, "nothing/d", nil); err != nil {
				t.Error(err)
			}
		case 5:
			if seen.Load() != 5 {
				t.Error("progress to 5, whose event did not come yet")
			}
			cancel()
		}
	})
	storesuite.WantError(t, "watch", err, context.Canceled)
}

func (s suite) watchEnds(t *testing.T) {
	st := s.c.New(t)()
	mustCreate(t, st, "things/a", "1")
	mustCreate(t, st, "things/b", "1")
	calls := 0
	err := st.Watch(t.Context(), "", 0, func(objects.Event) error { calls++; return errEnough }, nil)
	if !errors.Is(err, errEnough) || calls != 1 {
		t.Errorf("watch: %v after %d events, want the callback's error after one", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	err = st.Watch(ctx, "", 0, func(objects.Event) error { calls++; cancel(); return nil }, nil)
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("watch: %v after %d events, want the context's end after one", err, calls)
	}
}

func (s suite) watchHasNoGap(t *testing.T) {
	stores := s.c.Open(t)
	const each = 4
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			next := uint64(1)
			err := stores[w].Watch(ctx, "", 0, func(e objects.Event) error {
				if e.Object.Revision != next {
					return fmt.Errorf("revision %d comes after %d", e.Object.Revision, next-1)
				}
				if next++; next > uint64(len(stores)*each*3) {
					return errEnough
				}
				return nil
			}, nil)
			storesuite.WantError(t, "watch", err, errEnough)
		})
	}
	storesuite.Race(t, stores, nil, func(i int, st objects.Store) error {
		for n := range each {
			key := fmt.Sprintf("things/%d-%d", i, n)
			o, err := st.Create(t.Context(), key, []byte("1"))
			if err != nil {
				return err
			}
			if o, err = st.Update(t.Context(), key, []byte("2"), o.Revision); err != nil {
				return err
			}
			if _, err = st.Delete(t.Context(), key, o.Revision); err != nil {
				return err
			}
		}
		return nil
	})
	if t.Failed() {
		cancel() // the watches would wait for missing writes
	}
	wg.Wait()
}

// follow lists and watches the objects below things/ until the write that creates end. It lists again in between.
func follow(t *testing.T, st objects.Store, end string) map[string]string {
	t.Helper()
	errListAgain := errors.New("list again")
	for limit := 0; ; limit = 3 {
		all, rev, err := readPages(t.Context(), st, "things/", limit)
		if err != nil {
			t.Error(err)
			return nil
		}
		known, complete := map[string]string{}, false
		for _, o := range all {
			known[o.Key] = show(o)
			// A later page may show a write after the list's revision. Earlier pages may lack such writes.
			complete = complete || o.Key == end && o.Revision <= rev
		}
		if complete {
			return known
		}
		err = st.Watch(t.Context(), "things/", rev, func(e objects.Event) error {
			known[e.Object.Key] = show(e.Object)
			if e.Type == objects.Deleted {
				delete(known, e.Object.Key)
			}
			if e.Object.Key == end {
				return errEnough
			}
			if limit == 0 {
				return errListAgain
			}
			return nil
		}, nil)
		if !errors.Is(err, errListAgain) {
			storesuite.WantError(t, "watch", err, errEnough)
			return known
		}
	}
}

// A list and a watch from its revision must miss no write. Otherwise an informer would keep a cluster that is gone.
func (s suite) listAndWatch(t *testing.T) {
	stores := s.c.Open(t)
	const each, end = 10, "things/end"
	var wg sync.WaitGroup
	finals := make([]map[string]string, 4)
	for w := range finals {
		wg.Go(func() { finals[w] = follow(t, stores[w], end) })
	}
	storesuite.Race(t, stores[4:], nil, func(i int, st objects.Store) error {
		for n := range each {
			key := fmt.Sprintf("things/%d-%d", i, n%4)
			o, err := st.Get(t.Context(), key)
			switch {
			case errors.Is(err, objects.ErrNotFound):
				_, err = st.Create(t.Context(), key, fmt.Append(nil, n))
			case err == nil && n%3 == 0:
				_, err = st.Delete(t.Context(), key, o.Revision)
			case err == nil:
				_, err = st.Update(t.Context(), key, fmt.Append(nil, n), o.Revision)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	mustCreate(t, stores[0], end, "")
	wg.Wait()
	page, err := stores[7].List(t.Context(), "things/", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, o := range page.Objects {
		want[o.Key] = show(o)
	}
	for w, got := range finals {
		if !maps.Equal(got, want) {
			t.Errorf("watcher %d knows %v, want %v", w, got, want)
		}
	}
}

func (s suite) compaction(t *testing.T) {
	open := s.c.New(t)
	st := open()
	o := mustCreate(t, st, "things/a", "0")
	mustCreate(t, st, "things/b", "0")
	for i := 1; i <= 8; i++ {
		o = mustUpdate(t, st, "things/a", fmt.Sprint(i), o.Revision)
	}
	s.c.Compact(t, st, 6)
	for name, st := range map[string]objects.Store{"the same store": st, "another": open()} {
		for _, from := range []uint64{0, 1, 5} {
			err := st.Watch(t.Context(), "", from, func(objects.Event) error { return errEnough }, nil)
			storesuite.WantError(t, fmt.Sprintf("%s: watch from %d", name, from), err, objects.ErrCompacted)
		}
		// A revision that this store never had comes from before it was restored, or from another store.
		err := st.Watch(t.Context(), "", 11, func(objects.Event) error { return errEnough }, nil)
		storesuite.WantError(t, name+": watch from 11", err, objects.ErrCompacted)
		events := watchN(t, st, "", 6, 4)
		if got, want := showEvent(events[0]), `UPDATED "things/a"="5"(1) 1/7 before "4"(1)`; got != want {
			t.Errorf("%s: first event after the compaction %s, want %s", name, got, want)
		}
		if got, rev := pages(t, st, "things/", 0); len(got) != 2 || rev != 10 {
			t.Errorf("%s: list %v at revision %d", name, got, rev)
		}
	}
	// A running watch continues.
	err := st.Watch(t.Context(), "", 10, func(e objects.Event) error {
		if e.Object.Revision == 12 {
			return errEnough
		}
		return nil
	}, func(rev uint64) {
		if rev < 12 {
			s.c.Compact(t, st, rev)
			o = mustUpdate(t, st, "things/a", "next", o.Revision)
		}
	})
	storesuite.WantError(t, "watch under way", err, errEnough)
	mustDelete(t, st, "things/a", o.Revision)
	wantRevision(t, open(), 13)
}
