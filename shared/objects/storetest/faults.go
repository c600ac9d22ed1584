package storetest

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
)

// calls calls every method of a store that holds things/there at revision 1, all at once.
func calls(ctx context.Context, st objects.Store) map[string]error {
	methods := map[string]func() error{
		"get":      func() error { _, err := st.Get(ctx, "things/there"); return err },
		"list":     func() error { _, err := st.List(ctx, "things/", 0, ""); return err },
		"revision": func() error { _, err := st.Revision(ctx); return err },
		"create":   func() error { _, err := st.Create(ctx, "things/new", []byte("v")); return err },
		"update":   func() error { _, err := st.Update(ctx, "things/there", []byte("w"), 1); return err },
		"delete":   func() error { _, err := st.Delete(ctx, "things/there", 1); return err },
		"watch": func() error {
			return st.Watch(ctx, "", 0, func(objects.Event) error { return nil }, nil)
		},
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	for what, call := range methods {
		wg.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			errs[what] = err
		})
	}
	wg.Wait()
	return errs
}

func (s suite) denied(t *testing.T) {
	for what, err := range calls(t.Context(), s.c.Denied(t)) {
		wantError(t, what, err, objects.ErrForbidden)
		if objects.RetryAfter(err) != 0 {
			t.Errorf("%s: %v asks to try again", what, err)
		}
	}
}

func (s suite) throttledForAWhile(t *testing.T) {
	st := s.c.Throttled(t, 2)
	if _, err := st.Get(t.Context(), "things/there"); err != nil {
		t.Errorf("get: %v", err)
	}
	st = s.c.Throttled(t, 2)
	mustCreate(t, st, "things/new", "v")
	st = s.c.Throttled(t, 2)
	mustDelete(t, st, "things/there", 1)
}

func (s suite) throttledAllOfTheTime(t *testing.T) {
	for what, err := range calls(t.Context(), s.c.Throttled(t, math.MaxInt)) {
		wantError(t, what, err, objects.ErrUnavailable)
		if objects.RetryAfter(err) <= 0 {
			t.Errorf("%s: %v does not say when to try again", what, err)
		}
	}
}
