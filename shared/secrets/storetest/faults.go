package storetest

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// calls calls every method of a store that holds "there", all at once.
func calls(ctx context.Context, st secrets.Store) map[string]error {
	methods := map[string]func() error{
		"get":     func() error { _, err := st.Get(ctx, "there"); return err },
		"list":    func() error { _, err := st.List(ctx, nil); return err },
		"create":  func() error { _, err := st.Create(ctx, "new", value("v"), nil); return err },
		"replace": func() error { _, err := st.Replace(ctx, "there", "1", value("w")); return err },
		"delete":  func() error { return st.Delete(ctx, "there") },
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
	for what, err := range calls(t.Context(), discreet{s.c.Denied(t), t}) {
		wantError(t, what, err, secrets.ErrForbidden)
		if secrets.RetryAfter(err) != 0 {
			t.Errorf("%s: %v asks to try again", what, err)
		}
	}
}

func (s suite) throttledForAWhile(t *testing.T) {
	st := s.c.Throttled(t, 2)
	if _, err := st.Get(t.Context(), "there"); err != nil {
		t.Errorf("get: %v", err)
	}
	st = s.c.Throttled(t, 2)
	mustCreate(t, st, "new", value("v"), nil)
	st = s.c.Throttled(t, 2)
	if err := st.Delete(t.Context(), "there"); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func (s suite) throttledAllOfTheTime(t *testing.T) {
	for what, err := range calls(t.Context(), discreet{s.c.Throttled(t, math.MaxInt), t}) {
		wantError(t, what, err, secrets.ErrUnavailable)
		if secrets.RetryAfter(err) <= 0 {
			t.Errorf("%s: %v does not say when to try again", what, err)
		}
	}
}
