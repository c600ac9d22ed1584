package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

func (s suite) watch(t *testing.T) {
	open := s.c.New(t)
	st := newHistory(t, open())
	events := make(chan objects.Event)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { // watches the empty store, like another process
		err := open().Watch(ctx, "", st.start, func(e objects.Event) error { events <- e; return nil }, nil)
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
		if got := st.showEvent(<-events); got != w {
			t.Errorf("event %d is %s, want %s", i+1, got, w)
		}
	}
	cancel()
	wg.Wait()
	// A later watch from any revision returns the same events.
	for from := range len(want) {
		for i, e := range watchN(t, open(), "", st.revision(from), len(want)-from) {
			if got := st.showEvent(e); got != want[from+i] {
				t.Errorf("from %d: event is %s, want %s", from, got, want[from+i])
			}
		}
	}
}

func (s suite) changes(t *testing.T) {
	open := s.c.New(t)
	st := newHistory(t, open())
	a := mustCreate(t, st, "things/a", "1")
	mustUpdate(t, st, "things/a", "2", a.Revision)
	b := mustCreate(t, st, "things/b", "1")
	mustDelete(t, st, "things/b", b.Revision)
	want := []string{"CREATED things/a", "UPDATED things/a", "CREATED things/b", "DELETED things/b"}
	another := open()
	for from := range want {
		changes, to, err := another.Changes(t.Context(), st.revision(from), len(want))
		var got []string
		for _, e := range changes {
			got = append(got, fmt.Sprintf("%s %s", e.Type, e.Object.Key))
		}
		if err != nil || !slices.Equal(got, want[from:]) {
			t.Errorf("changes from %d: %v, %v; want %v", from, got, err, want[from:])
		}
		if changes, again, err := another.Changes(t.Context(), to, 1); err != nil || len(changes) != 0 || again < to {
			t.Errorf("changes from the last revision %d: %v to %d, %v; want none", to, changes, again, err)
		}
		_, _, err = another.Changes(t.Context(), st.revision(from), len(want)-from-1)
		storesuite.WantError(t, "too many changes", err, objects.ErrCompacted)
	}
	_, _, err := st.Changes(t.Context(), 1<<60, manyWrites)
	storesuite.WantError(t, "changes from a revision of another store", err, objects.ErrCompacted)
}

func (s suite) watchPrefix(t *testing.T) {
	open := s.c.New(t)
	st := newHistory(t, open())
	mustCreate(t, st, "things/a", "1")
	mustCreate(t, st, "thingsnot/b", "1")
	from := mustCreate(t, st, "things/ab", "1").Revision
	for prefix, want := range map[string][]string{
		"things/":   {"things/a", "things/ab"},
		"things/ab": {"things/ab"},
		"things":    {"things/a", "thingsnot/b", "things/ab"},
		"":          {"things/a", "thingsnot/b", "things/ab"},
	} {
		var got []string
		for _, e := range watchN(t, st, prefix, st.start, len(want)) {
			got = append(got, e.Object.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("watch %q: %v, want %v", prefix, got, want)
		}
	}
	// Progress is reported without events, too, and is never ahead of the events.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	another := open()
	create := func(key string) uint64 {
		o, err := another.Create(ctx, key, nil)
		if err != nil {
			t.Error(err)
			cancel()
		}
		return o.Revision
	}
	var last, seen, unwatched, watched uint64
	err := st.Watch(ctx, "nothing/", from, func(e objects.Event) error {
		seen = e.Object.Revision
		return nil
	}, func(rev uint64) {
		if rev < last || rev < from {
			t.Errorf("progress went back from %d to %d", max(last, from), rev)
		}
		last = rev
		switch {
		case unwatched == 0:
			unwatched = create("things/c")
		case watched == 0 && rev >= unwatched:
			watched = create("nothing/d")
		case watched != 0 && rev >= watched:
			if seen != watched {
				t.Errorf("progress to %d, but the event of %d did not come yet", rev, watched)
			}
			cancel()
		}
	})
	storesuite.WantError(t, "watch", err, context.Canceled)
}

func (s suite) watchEnds(t *testing.T) {
	st := s.open(t)
	mustCreate(t, st, "things/a", "1")
	mustCreate(t, st, "things/b", "1")
	calls := 0
	err := st.Watch(t.Context(), "", st.start, func(objects.Event) error { calls++; return errEnough }, nil)
	if !errors.Is(err, errEnough) || calls != 1 {
		t.Errorf("watch: %v after %d events, want the callback's error after one", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	err = st.Watch(ctx, "", st.start, func(objects.Event) error { calls++; cancel(); return nil }, nil)
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("watch: %v after %d events, want the context's end after one", err, calls)
	}
}

func (s suite) watchHasNoGap(t *testing.T) {
	stores := s.c.Open(t)
	const each, end = 4, "other/end"
	start := newHistory(t, stores[0]).start
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			last, n := start, 0
			err := stores[w].Watch(ctx, "", start, func(e objects.Event) error {
				if e.Object.Revision <= last {
					return fmt.Errorf("revision %d comes after %d", e.Object.Revision, last)
				}
				last = e.Object.Revision
				if n++; e.Object.Key == end {
					return errEnough
				}
				return nil
			}, nil)
			storesuite.WantError(t, "watch", err, errEnough)
			if want := len(stores)*each*3 + 1; n != want {
				t.Errorf("a watch got %d events, want %d", n, want)
			}
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
	mustCreate(t, stores[0], end, "")
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
	st := newHistory(t, open())
	o := mustCreate(t, st, "things/a", "0")
	mustCreate(t, st, "things/b", "0")
	for i := 1; i <= 8; i++ {
		o = mustUpdate(t, st, "things/a", fmt.Sprint(i), o.Revision)
	}
	s.c.Compact(t, st.Store, st.revision(6))
	for name, opened := range map[string]objects.Store{"the same store": st, "another": open()} {
		for _, from := range []int{0, 1, 5} {
			err := opened.Watch(t.Context(), "", st.revision(from), func(objects.Event) error { return errEnough }, nil)
			storesuite.WantError(t, fmt.Sprintf("%s: watch from %d", name, from), err, objects.ErrCompacted)
			_, _, err = opened.Changes(t.Context(), st.revision(from), manyWrites)
			storesuite.WantError(t, fmt.Sprintf("%s: changes from %d", name, from), err, objects.ErrCompacted)
		}
		// A revision that this store never had comes from before it was restored, or from another store.
		err := opened.Watch(t.Context(), "", 1<<60, func(objects.Event) error { return errEnough }, nil)
		storesuite.WantError(t, name+": watch from a later revision", err, objects.ErrCompacted)
		events := watchN(t, opened, "", st.revision(6), 4)
		if got, want := st.showEvent(events[0]), `UPDATED "things/a"="5"(1) 1/7 before "4"(1)`; got != want {
			t.Errorf("%s: first event after the compaction %s, want %s", name, got, want)
		}
		if got, rev := pages(t, opened, "things/", 0); len(got) != 2 || rev < st.revision(10) {
			t.Errorf("%s: list %v at revision %d", name, got, rev)
		}
	}
	// A running watch continues.
	updates := 0
	err := st.Watch(t.Context(), "", st.revision(10), func(e objects.Event) error {
		if string(e.Object.Value) == "next 2" {
			return errEnough
		}
		return nil
	}, func(rev uint64) {
		if rev >= o.Revision && updates < 2 {
			updates++
			s.c.Compact(t, st.Store, rev)
			o = mustUpdate(t, st, "things/a", fmt.Sprintf("next %d", updates), o.Revision)
		}
	})
	storesuite.WantError(t, "watch under way", err, errEnough)
	mustDelete(t, st, "things/a", o.Revision)
	wantWrites(t, open(), st.revision(12), 1)
}
