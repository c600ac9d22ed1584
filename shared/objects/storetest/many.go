package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

func (s suite) independentWriters(t *testing.T) {
	stores := s.c.Open(t)
	const each = 6
	revisions := make([][]uint64, len(stores))
	storesuite.Race(t, stores, nil, func(i int, st objects.Store) error {
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
	if len(slices.Compact(slices.Clone(all))) != len(stores)*each {
		t.Fatalf("revisions %v: want each once", all)
	}
	for i, r := range revisions {
		if len(r) != each || !slices.IsSorted(r) {
			t.Errorf("writer %d got revisions %v", i, r)
		}
	}
}

// readPages reads all pages of a list, or returns an error if they do not fit together.
func readPages(ctx context.Context, st objects.Store, prefix string, limit int) ([]objects.Object, uint64, error) {
	var (
		all []objects.Object
		rev uint64
	)
	for cont, last := "", ""; ; {
		page, err := st.List(ctx, prefix, limit, cont)
		if err != nil {
			return nil, 0, err
		}
		if cont != "" && page.Revision != rev {
			return nil, 0, fmt.Errorf("a later page has revision %d, the first has %d", page.Revision, rev)
		}
		rev = page.Revision
		if limit > 0 && len(page.Objects) > limit {
			return nil, 0, fmt.Errorf("%d objects in a page of %d", len(page.Objects), limit)
		}
		for _, o := range page.Objects {
			if o.Key <= last || !strings.HasPrefix(o.Key, prefix) {
				return nil, 0, fmt.Errorf("%s follows %s in a list of %s", o.Key, last, prefix)
			}
			last = o.Key
		}
		all = append(all, page.Objects...)
		if cont = page.Continue; cont != "" {
			continue
		}
		if page.Remaining > 0 {
			return nil, 0, fmt.Errorf("the last page reports %d remaining objects", page.Remaining)
		}
		return all, rev, nil
	}
}

func pages(t *testing.T, st objects.Store, prefix string, limit int) (keys []string, rev uint64) {
	t.Helper()
	all, rev, err := readPages(t.Context(), st, prefix, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		keys = append(keys, o.Key)
	}
	return keys, rev
}

func (s suite) pages(t *testing.T) {
	st := s.open(t)
	var (
		want []string
		made []objects.Object
		last objects.Object
	)
	for i := range 23 {
		want = append(want, fmt.Sprintf("things/%02d", i))
		made = append(made, mustCreate(t, st, want[i], "v"))
		last = mustCreate(t, st, fmt.Sprintf("things2/%02d", i), "v")
	}
	for _, limit := range []int{0, 1, 5, 22, 23, 24, 1000, math.MaxInt} {
		if got, rev := pages(t, st, "things/", limit); !slices.Equal(got, want) || rev < last.Revision {
			t.Errorf("pages of %d: %v at revision %d, want %v at %d", limit, got, rev, want, last.Revision)
		}
	}
	none, err := st.List(t.Context(), "nothing/", 0, "")
	if err != nil || len(none.Objects) != 0 || none.Revision < last.Revision || none.Continue != "" ||
		none.Remaining > 0 {
		t.Errorf("list of nothing: %+v, %v", none, err)
	}
	first, err := st.List(t.Context(), "things/", 5, "")
	if err != nil {
		t.Fatal(err)
	}
	if first.Remaining != 18 && first.Remaining != -1 {
		t.Errorf("%d remain, want 18 or unknown", first.Remaining)
	}
	// The last object of a page may be deleted before the next page is read.
	mustDelete(t, st, "things/04", made[4].Revision)
	second, err := st.List(t.Context(), "things/", 5, first.Continue)
	if err != nil || len(second.Objects) != 5 || second.Objects[0].Key != "things/05" ||
		second.Revision != first.Revision {
		t.Errorf("second page %+v, %v", second, err)
	}
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
