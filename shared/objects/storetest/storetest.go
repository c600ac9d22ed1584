// Package storetest is what every objects.Store must do, as tests that each implementation runs.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
)

// Config says how to get the stores to test.
type Config struct {
	// New makes an empty store that ends with the test. Each call of the function it returns opens the
	// store once more, as another process would.
	New func(t *testing.T) func() objects.Store
	// Compact drops the history up to revision to of a store that New made.
	Compact func(t *testing.T, st objects.Store, to uint64)
	// Denied returns a store whose holder may do nothing. Nil for a store that decides that when it is opened.
	Denied func(t *testing.T) objects.Store
	// Throttled returns a store that holds the object "things/there" at revision 1, and refuses the next n
	// calls of whatever it is made of because there were too many. Nil for a store that knows no such thing.
	Throttled func(t *testing.T, n int) objects.Store
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	s := suite{c}
	tests := map[string]func(*testing.T){
		"one object":          s.oneObject,
		"missing":             s.missing,
		"conflicts":           s.conflicts,
		"values":              s.values,
		"keys":                s.keys,
		"invalid":             s.invalid,
		"pages":               s.pages,
		"list under change":   s.listUnderChange,
		"eight creators":      s.eightCreators,
		"eight writers":       s.eightWriters,
		"independent writers": s.independentWriters,
		"count up":            s.countUp,
		"watch":               s.watch,
		"watch prefix":        s.watchPrefix,
		"watch ends":          s.watchEnds,
		"watch has no gap":    s.watchHasNoGap,
		"list and watch":      s.listAndWatch,
		"compaction":          s.compaction,
		"ended context":       s.endedContext,
	}
	if c.Denied != nil {
		tests["permission refused"] = s.denied
	}
	if c.Throttled != nil {
		tests["throttled for a while"] = s.throttledForAWhile
		tests["throttled all of the time"] = s.throttledAllOfTheTime
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

type suite struct{ c Config }

func mustCreate(t *testing.T, s objects.Store, key, value string) objects.Object {
	t.Helper()
	o, err := s.Create(t.Context(), key, []byte(value))
	if err != nil {
		t.Fatalf("create %s: %v", key, err)
	}
	return o
}

func mustUpdate(t *testing.T, s objects.Store, key, value string, rev uint64) objects.Object {
	t.Helper()
	o, err := s.Update(t.Context(), key, []byte(value), rev)
	if err != nil {
		t.Fatalf("update %s: %v", key, err)
	}
	return o
}

func mustDelete(t *testing.T, s objects.Store, key string, rev uint64) objects.Object {
	t.Helper()
	o, err := s.Delete(t.Context(), key, rev)
	if err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
	return o
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func wantRevision(t *testing.T, s objects.Store, want uint64) {
	t.Helper()
	if got, err := s.Revision(t.Context()); err != nil || got != want {
		t.Errorf("revision %d, %v; want %d", got, err, want)
	}
}

// show is an object as text, to compare.
func show(o objects.Object) string {
	return fmt.Sprintf("%q=%.40q(%d) %d/%d", o.Key, o.Value, len(o.Value), o.Created, o.Revision)
}

// CountUp replaces the object key, a number, by the next number, n times, whoever else does. Others that
// do the same may live in other processes.
func CountUp(ctx context.Context, s objects.Store, key string, n int) error {
	for range n {
		for {
			o, err := s.Get(ctx, key)
			if err != nil {
				return err
			}
			i, err := strconv.Atoi(string(o.Value))
			if err != nil {
				return err
			}
			_, err = s.Update(ctx, key, strconv.AppendInt(nil, int64(i+1), 10), o.Revision)
			if err == nil {
				break
			}
			if !errors.Is(err, objects.ErrConflict) {
				return err
			}
		}
	}
	return nil
}

const writers = 8

func (s suite) stores(t *testing.T) []objects.Store {
	open := s.c.New(t)
	stores := make([]objects.Store, writers)
	for i := range stores {
		stores[i] = open()
	}
	return stores
}

// race calls f for every writer at once, each with a store of its own, and returns who had no error. Every
// other error must be loss.
func race(t *testing.T, stores []objects.Store, loss error, f func(i int, st objects.Store) error) (winners []int) {
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
