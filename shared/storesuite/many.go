package storesuite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Writers is the number of stores that Open opens.
const Writers = 8

// Open opens the same empty store once for each of Writers writers.
func (c Config[S]) Open(t *testing.T) []S {
	t.Helper()
	open := c.New(t)
	stores := make([]S, Writers)
	for i := range stores {
		stores[i] = open()
	}
	return stores
}

func (s suite[S]) openAll(t *testing.T) []Store {
	t.Helper()
	var stores []Store
	for _, st := range s.c.Open(t) {
		stores = append(stores, s.adapt(t, st))
	}
	return stores
}

// Race calls f for all stores at once, and returns the indexes of those that succeeded. The others must return loss. If
// loss is nil, none may fail.
func Race[S any](t *testing.T, stores []S, loss error, f func(i int, st S) error) (winners []int) {
	t.Helper()
	errs := make([]error, len(stores))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, st := range stores {
		wg.Go(func() {
			<-start
			errs[i] = f(i, st)
		})
	}
	close(start)
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			winners = append(winners, i)
		} else if !errors.Is(err, loss) {
			t.Errorf("writer %d: %v, want %v", i, err, loss)
		}
	}
	return winners
}

func raceForOne(t *testing.T, stores []Store, loss error, f func(i int, st Store) error) int {
	t.Helper()
	winners := Race(t, stores, loss, f)
	if len(winners) != 1 {
		t.Fatalf("winners %v, want one", winners)
	}
	return winners[0]
}

func (s suite[S]) eightCreators(t *testing.T) {
	stores := s.openAll(t)
	writes := 0
	for round := range 6 {
		name := fmt.Sprintf("races/create-%d", round)
		if round%2 == 1 {
			mustDelete(t, stores[0], mustCreate(t, stores[0], name, "old"))
			writes += 2
		}
		created := make([]Record, len(stores))
		winner := raceForOne(t, stores, s.ErrExists, func(i int, st Store) (err error) {
			created[i], err = st.Create(t.Context(), name, strconv.Itoa(i))
			return err
		})
		writes++
		wantCurrent(t, stores[0], created[winner])
		wantListed(t, stores[0], created[winner])
		stores[1].WantWrites(t, writes)
	}
}

// eightWriters replaces one version eight times at once, in every third round with equal values.
func (s suite[S]) eightWriters(t *testing.T) {
	stores := s.openAll(t)
	current := mustCreate(t, stores[0], "races/one", "start")
	for round := range 10 {
		written := make([]Record, len(stores))
		winner := raceForOne(t, stores, s.ErrConflict, func(i int, st Store) (err error) {
			value := fmt.Sprintf("%d-%d", round, i)
			if round%3 == 2 {
				value = strconv.Itoa(round)
			}
			written[i], err = st.Replace(t.Context(), current, value)
			return err
		})
		current = written[winner]
		for _, st := range stores {
			wantCurrent(t, st, current)
		}
		wantListed(t, stores[0], current)
		stores[0].WantWrites(t, round+2)
	}
	raceForOne(t, stores, s.ErrNotFound, func(_ int, st Store) error { return st.Delete(t.Context(), current) })
	_, err := stores[0].Get(t.Context(), current.Name)
	WantError(t, "get a deleted record", err, s.ErrNotFound)
}

const counter = "races/number"

// CountUp increments the number in the record counter n times, beside other callers and processes.
func (k Kind) CountUp(ctx context.Context, st Store, n int) error {
	for counted := 0; counted < n; {
		r, err := st.Get(ctx, counter)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(r.Value)
		if err != nil {
			return fmt.Errorf("read %s: %w", counter, err)
		}
		switch _, err = st.Replace(ctx, r, strconv.Itoa(number+1)); {
		case err == nil:
			counted++
		case !errors.Is(err, k.ErrConflict):
			return err
		}
	}
	return nil
}

func wantCount(t *testing.T, st Store, n int) Record {
	t.Helper()
	got, err := st.Get(t.Context(), counter)
	if err != nil || got.Value != strconv.Itoa(n) {
		t.Errorf("counted to %s, %v; want %d", got.Value, err, n)
	}
	st.WantWrites(t, n+1)
	return got
}

func (s suite[S]) countUp(t *testing.T) {
	const each = 4
	stores := s.openAll(t)
	mustCreate(t, stores[0], counter, "0")
	Race(t, stores, nil, func(_ int, st Store) error { return s.CountUp(t.Context(), st, each) })
	wantCount(t, stores[0], len(stores)*each)
}

// A cluster must not vanish from a list because another one is registered.
func (s suite[S]) listUnderChange(t *testing.T) {
	open := s.c.New(t)
	st := s.adapt(t, open())
	var unchanged []string
	for i := range s.Unchanged {
		unchanged = append(unchanged, fmt.Sprintf("lists/m%03d", i))
		mustCreate(t, st, unchanged[i], "v")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for w := range 2 {
		st := s.adapt(t, open())
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// The changing records come before, between and after the unchanged ones.
				stem := []string{"lists/a", unchanged[i*7%len(unchanged)], "lists/z"}[i%3]
				r, err := st.Create(ctx, fmt.Sprintf("%s-%d", stem, w), "v")
				if err == nil {
					err = st.Delete(ctx, r)
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("create and delete beside a list: %v", err)
					return
				}
			}
		})
	}
	for round := range 8 {
		pageSize := []int{0, 4}[round%2]
		records, err := st.List(t.Context(), "lists/", pageSize)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		last := ""
		for _, r := range records {
			if r.Name <= last {
				t.Fatalf("%s follows %s", r.Name, last)
			}
			last = r.Name
			if slices.Contains(unchanged, r.Name) {
				found = append(found, r.Name)
			}
		}
		if !slices.Equal(found, unchanged) {
			t.Fatalf("a list has %d of %d unchanged records: %v", len(found), len(unchanged), found)
		}
	}
}
