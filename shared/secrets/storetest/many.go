package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

const writers = 8

// race calls f for every writer at once, each with a store of its own, and returns who had no error. Every
// other error must be loss.
func race(t *testing.T, stores []secrets.Store, loss error, f func(i int, st secrets.Store) error) (winners []int) {
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

func (s suite) stores(t *testing.T) []secrets.Store {
	open := s.c.New(t)
	stores := make([]secrets.Store, writers)
	for i := range stores {
		stores[i] = discreet{open(), t}
	}
	return stores
}

func (s suite) eightCreators(t *testing.T) {
	stores := s.stores(t)
	for round := range 4 {
		name := fmt.Sprintf("races/create-%d", round)
		if round%2 == 1 { // a name that was deleted
			mustCreate(t, stores[0], name, value("old"), map[string]string{"old": "yes"})
			if err := stores[0].Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		versions := make([]string, writers)
		labels := func(i int) map[string]string { return map[string]string{"winner": fmt.Sprint(i)} }
		winners := race(t, stores, secrets.ErrExists, func(i int, st secrets.Store) (err error) {
			versions[i], err = st.Create(t.Context(), name, value(fmt.Sprint(i)), labels(i))
			return err
		})
		if len(winners) != 1 {
			t.Fatalf("round %d: winners %v, want one", round, winners)
		}
		w := winners[0]
		wantSecret(t, stores[0], name, versions[w], value(fmt.Sprint(w)), labels(w))
	}
}

func (s suite) eightWriters(t *testing.T) {
	stores := s.stores(t)
	const name = "races/replace"
	version := mustCreate(t, stores[0], name, value("start"), map[string]string{"keep": "me"})
	for round := range 10 {
		versions := make([]string, writers)
		values := make([]secrets.Value, writers)
		for i := range values {
			if values[i] = value(fmt.Sprint(round, i)); round%3 == 2 { // all want the same
				values[i] = value(fmt.Sprint(round))
			}
		}
		winners := race(t, stores, secrets.ErrConflict, func(i int, st secrets.Store) (err error) {
			versions[i], err = st.Replace(t.Context(), name, version, values[i])
			return err
		})
		if len(winners) != 1 {
			t.Fatalf("round %d: winners %v, want one", round, winners)
		}
		w := winners[0]
		version = versions[w]
		for _, st := range stores {
			wantSecret(t, st, name, version, values[w], nil)
		}
		wantLabels(t, stores[0], name, map[string]string{"keep": "me"})
	}
}

// fourDelete holds: of those who delete one has done it, whatever others write meanwhile, and nobody is told that the store cannot
// answer.
func (s suite) fourDelete(t *testing.T) {
	stores := s.stores(t)
	const name = "races/delete"
	for range 6 {
		version := mustCreate(t, stores[0], name, value("start"), nil)
		deletes := func(i int) bool { return i%2 == 0 }
		winners := race(t, stores, secrets.ErrNotFound, func(i int, st secrets.Store) error {
			if deletes(i) {
				return st.Delete(t.Context(), name)
			}
			_, err := st.Replace(t.Context(), name, version, value(fmt.Sprint(i)))
			if errors.Is(err, secrets.ErrConflict) {
				return secrets.ErrNotFound // either will do: it was replaced, or deleted, before
			}
			return err
		})
		replaced := slices.DeleteFunc(slices.Clone(winners), deletes)
		if len(replaced) > 1 || len(winners)-len(replaced) != 1 {
			t.Fatalf("winners %v, want one of those who delete, who are the even ones, and at most one of the others", winners)
		}
		_, err := stores[0].Get(t.Context(), name)
		wantError(t, "get", err, secrets.ErrNotFound)
	}
}

func (s suite) countUp(t *testing.T) {
	stores := s.stores(t)
	const name, each = "races/number", 4
	mustCreate(t, stores[0], name, secrets.NewValue([]byte("0")), nil)
	race(t, stores, nil, func(_ int, st secrets.Store) error { return CountUp(t.Context(), st, name, each) })
	got, err := stores[0].Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if n, want := string(got.Value.Reveal()), fmt.Sprint(writers*each); n != want {
		t.Errorf("%s counts in all, want %s", n, want)
	}
}

func (s suite) labels(t *testing.T) {
	st := s.open(t)
	all := map[string]map[string]string{
		"clusters/a": {"env": "prod", "example.com/team": "Red_1.x"},
		"clusters/b": {"env": "prod", "empty": ""},
		"clusters/c": {"env": "test"},
		"keys/a":     nil,
	}
	for name, labels := range all {
		version := mustCreate(t, st, name, value("1"), labels)
		version = mustReplace(t, st, name, version, value("2"))
		wantSecret(t, st, name, version, value("2"), labels)
	}
	for _, tt := range []struct {
		labels map[string]string
		want   []string
	}{
		{nil, []string{"clusters/a", "clusters/b", "clusters/c", "keys/a"}},
		{map[string]string{}, []string{"clusters/a", "clusters/b", "clusters/c", "keys/a"}},
		{map[string]string{"env": "prod"}, []string{"clusters/a", "clusters/b"}},
		{map[string]string{"env": "prod", "example.com/team": "Red_1.x"}, []string{"clusters/a"}},
		{map[string]string{"empty": ""}, []string{"clusters/b"}},
		{map[string]string{"env": ""}, nil},
		{map[string]string{"env": "pro"}, nil},
		{map[string]string{"Env": "prod"}, nil},
		{map[string]string{"env": "test", "example.com/team": "Red_1.x"}, nil},
	} {
		metas, err := st.List(t.Context(), tt.labels)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range metas {
			got = append(got, m.Name)
			if !sameLabels(m.Labels, all[m.Name]) || m.Version == "" || m.Updated.IsZero() {
				t.Errorf("%+v, want labels %v, a version, a time", m, all[m.Name])
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("list %v: %v, want %v", tt.labels, got, tt.want)
		}
	}
}

// listUnderChange holds that what nobody touches is in every list, once, however much else changes.
func (s suite) listUnderChange(t *testing.T) {
	open := s.c.New(t)
	st := open()
	const stable = 110 // more than a page of Secrets Manager
	for i := range stable {
		mustCreate(t, st, fmt.Sprintf("stable/%03d", i), value("v"), nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for w := range 2 {
		st := open()
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// Before and after the stable ones in the order, and between.
				name := fmt.Sprintf([]string{"a/%d-%d", "stable/050-%d-%d", "z/%d-%d"}[i%3], w, i%7)
				if _, err := st.Create(ctx, name, value("v"), nil); err != nil && ctx.Err() == nil {
					t.Errorf("create %s: %v", name, err)
					return
				}
				if err := st.Delete(ctx, name); err != nil && ctx.Err() == nil {
					t.Errorf("delete %s: %v", name, err)
					return
				}
			}
		})
	}
	for range 5 {
		metas, err := st.List(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		last, found := "", 0
		for _, m := range metas {
			if m.Name <= last {
				t.Fatalf("%s comes after %s", m.Name, last)
			}
			last = m.Name
			seen[m.Name] = true
		}
		for i := range stable {
			if seen[fmt.Sprintf("stable/%03d", i)] {
				found++
			}
		}
		if found != stable {
			t.Fatalf("a list has %d of %d that nobody touches", found, stable)
		}
	}
}
