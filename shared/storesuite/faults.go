package storesuite

import (
	"context"
	"math"
	"sync"
	"testing"
)

// Calls are calls of a store's methods, by the name of the method.
type Calls map[string]func() error

// callAll calls every method of st at the same time. sample is the current version of SampleName.
func callAll(ctx context.Context, st Store, sample Record) map[string]error {
	calls := st.OtherCalls(ctx)
	calls["get"] = func() error { _, err := st.Get(ctx, sample.Name); return err }
	calls["list"] = func() error { _, err := st.List(ctx, "things/", 0); return err }
	calls["create"] = func() error { _, err := st.Create(ctx, "things/new", "v"); return err }
	calls["replace"] = func() error { _, err := st.Replace(ctx, sample, "w"); return err }
	calls["delete"] = func() error { return st.Delete(ctx, sample) }
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	for method, call := range calls {
		wg.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			errs[method] = err
		})
	}
	wg.Wait()
	return errs
}

func (s suite[S]) denied(t *testing.T) {
	sample := Record{Name: SampleName, Value: "v", Version: "1"}
	for method, err := range callAll(t.Context(), s.adapt(t, s.c.Denied(t)), sample) {
		WantError(t, method, err, s.ErrForbidden)
		if s.RetryAfter(err) != 0 {
			t.Errorf("%s: %v asks for a retry", method, err)
		}
	}
}

func (s suite[S]) throttledForAWhile(t *testing.T) {
	service, throttle := s.c.Throttled(t)
	st := s.adapt(t, service)
	sample := mustCreate(t, st, SampleName, "v")
	throttle(2)
	if _, err := st.Get(t.Context(), SampleName); err != nil {
		t.Errorf("get: %v", err)
	}
	throttle(2)
	mustCreate(t, st, "things/new", "v")
	throttle(2)
	mustDelete(t, st, sample)
}

func (s suite[S]) throttledAllOfTheTime(t *testing.T) {
	service, throttle := s.c.Throttled(t)
	st := s.adapt(t, service)
	sample := mustCreate(t, st, SampleName, "v")
	throttle(math.MaxInt)
	for method, err := range callAll(t.Context(), st, sample) {
		WantError(t, method, err, s.ErrUnavailable)
		if s.RetryAfter(err) <= 0 {
			t.Errorf("%s: %v does not say when to retry", method, err)
		}
	}
}

// endedContext checks that no method starts work for a caller that is gone.
func (s suite[S]) endedContext(t *testing.T) {
	st := s.open(t)
	current := mustCreate(t, st, SampleName, "v")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for method, err := range callAll(ctx, st, current) {
		WantError(t, method, err, context.Canceled)
	}
	wantCurrent(t, st, current)
	st.WantWrites(t, 1)
}
