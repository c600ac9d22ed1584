package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
)

func (s suite) eightCreators(t *testing.T) {
	stores := s.stores(t)
	for round := range 5 {
		key := fmt.Sprintf("races/%d", round)
		made := make([]objects.Object, writers)
		winners := race(t, stores, objects.ErrExists, func(i int, st objects.Store) (err error) {
			made[i], err = st.Create(t.Context(), key, fmt.Append(nil, i))
			return err
		})
		if len(winners) != 1 {
			t.Fatalf("round %d: winners %v, want one", round, winners)
		}
		if got, err := stores[0].Get(t.Context(), key); err != nil || show(got) != show(made[winners[0]]) {
			t.Errorf("round %d: got %s, %v; want the winner's %s", round, show(got), err, show(made[winners[0]]))
		}
		wantRevision(t, stores[1], uint64(round)+1)
	}
}

func (s suite) eightWriters(t *testing.T) {
	stores := s.stores(t)
	current := mustCreate(t, stores[0], "races/one", "start")
	for round := range 10 {
		made := make([]objects.Object, writers)
		winners := race(t, stores, objects.ErrConflict, func(i int, st objects.Store) (err error) {
			made[i], err = st.Update(t.Context(), current.Key, fmt.Append(nil, round, i), current.Revision)
			return err
		})
		if len(winners) != 1 {
			t.Fatalf("round %d: winners %v, want one", round, winners)
		}
		current = made[winners[0]]
		for _, st := range stores {
			if got, err := st.Get(t.Context(), current.Key); err != nil || show(got) != show(current) {
				t.Fatalf("round %d: got %s, %v; want %s", round, show(got), err, show(current))
			}
		}
		wantRevision(t, stores[0], uint64(round)+2)
	}
	winners := race(t, stores, objects.ErrNotFound, func(_ int, st objects.Store) error {
		_, err := st.Delete(t.Context(), current.Key, current.Revision)
		return err
	})
	if len(winners) != 1 {
		t.Errorf("%v deleted the object, want one", winners)
	}
}

// independentWriters write different objects and all succeed; each write has a revision of its own.
func (s suite) independentWriters(t *testing.T) {
	stores := s.stores(t)
	const each = 6
	revisions := make([][]uint64, writers)
	race(t, stores, nil, func(i int, st objects.Store) error {
		for n := range each {
			o, err := st.Create(t.Context(), fmt.Sprintf("mine/%d-%d", i, n), []byte("v"))
			if err != nil {
				return err
			}
			revisions[i] = append(revisions[i], o.Revision)
		}
		return nil
	})
	all := slices.Concat(revisions...)
	slices.Sort(all)
	for i, rev := range all {
		if rev != uint64(i)+1 {
			t.Fatalf("revisions %v: want each once, from 1 to %d", all, writers*each)
		}
	}
	for i, r := range revisions {
		if len(r) != each || !slices.IsSorted(r) {
			t.Errorf("writer %d got revisions %v", i, r)
		}
	}
}

func (s suite) countUp(t *testing.T) {
	stores := s.stores(t)
	const key, each = "races/number", 4
	mustCreate(t, stores[0], key, "0")
	race(t, stores, nil, func(_ int, st objects.Store) error { return CountUp(t.Context(), st, key, each) })
	got, err := stores[0].Get(t.Context(), key)
	if err != nil || string(got.Value) != fmt.Sprint(writers*each) {
		t.Errorf("%s counts in all, %v; want %d", got.Value, err, writers*each)
	}
}

// pages collects all pages of a list and checks how they go together.
func pages(t *testing.T, st objects.Store, prefix string, limit int) (keys []string, rev uint64) {
	t.Helper()
	cont, last := "", ""
	for n := 0; ; n++ {
		page, err := st.List(t.Context(), prefix, limit, cont)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && page.Revision != rev {
			t.Fatalf("page %d has revision %d, the first has %d", n, page.Revision, rev)
		}
		rev = page.Revision
		if limit > 0 && len(page.Objects) > limit {
			t.Fatalf("%d objects in a page of %d", len(page.Objects), limit)
		}
		for _, o := range page.Objects {
			if o.Key <= last || !strings.HasPrefix(o.Key, prefix) {
				t.Fatalf("%s comes after %s in a list of %s", o.Key, last, prefix)
			}
			last = o.Key
			keys = append(keys, o.Key)
		}
		if cont = page.Continue; cont == "" {
			if page.Remaining > 0 {
				t.Errorf("the last page says that %d remain", page.Remaining)
			}
			return keys, rev
		}
	}
}

func (s suite) pages(t *testing.T) {
	st := s.c.New(t)()
	var want []string
	for i := range 23 {
		want = append(want, fmt.Sprintf("things/%02d", i))
		mustCreate(t, st, want[i], "v")
		mustCreate(t, st, fmt.Sprintf("things2/%02d", i), "v")
	}
	for _, limit := range []int{0, 1, 5, 22, 23, 24, 1000} {
		if got, rev := pages(t, st, "things/", limit); !slices.Equal(got, want) || rev != 46 {
			t.Errorf("pages of %d: %v at revision %d, want %v at 46", limit, got, rev, want)
		}
	}
	first, err := st.List(t.Context(), "things/", 5, "")
	if err != nil {
		t.Fatal(err)
	}
	if first.Remaining != 18 && first.Remaining != -1 {
		t.Errorf("%d remain, want 18 or unknown", first.Remaining)
	}
	// The object a page ended with may go; the list goes on behind it.
	mustDelete(t, st, "things/04", 9)
	second, err := st.List(t.Context(), "things/", 5, first.Continue)
	if err != nil || len(second.Objects) != 5 || second.Objects[0].Key != "things/05" || second.Revision != first.Revision {
		t.Errorf("second page %+v, %v", second, err)
	}
	// Much data: more than what one answer of a store may carry.
	big := strings.Repeat("b", objects.MaxValue)
	want = nil
	for i := range 12 {
		want = append(want, fmt.Sprintf("big/%02d", i))
		mustCreate(t, st, want[i], big)
	}
	for _, limit := range []int{0, 7} {
		if got, _ := pages(t, st, "big/", limit); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", limit, got, want)
		}
	}
}

// listUnderChange holds that what nobody touches is in every list, once, however much else changes.
func (s suite) listUnderChange(t *testing.T) {
	open := s.c.New(t)
	st := open()
	var stable []string
	for i := range 30 {
		stable = append(stable, fmt.Sprintf("things/%02d", i))
		mustCreate(t, st, stable[i], "v")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for w := range 2 {
		st := open()
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("things/%02d-%d", i*7%30, w)
				o, err := st.Create(ctx, key, []byte("v"))
				if err == nil {
					_, err = st.Delete(ctx, key, o.Revision)
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("write %s: %v", key, err)
					return
				}
			}
		})
	}
	for i := range 8 {
		got, _ := pages(t, st, "things/", []int{0, 4}[i%2])
		got = slices.DeleteFunc(got, func(k string) bool { return strings.Contains(k, "-") })
		if !slices.Equal(got, stable) {
			t.Fatalf("a list has %v of what nobody touches", got)
		}
	}
}
