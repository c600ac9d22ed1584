package override

import (
	"context"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/objects/dir"
)

// TestOverrideEnds: an override that an operator stores is in force at once in every process, and ends by itself.
func TestOverrideEnds(t *testing.T) {
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	want := func(allowed bool, at time.Time) {
		t.Helper()
		if got, err := InForce(t.Context(), store, at); got != allowed || err != nil {
			t.Errorf("calls may go on: %v, %v, want %v", got, err, allowed)
		}
	}
	want(false, now)
	if err := Set(t.Context(), store, Override{now.Add(time.Hour), "disk"}); err != nil {
		t.Fatal(err)
	}
	want(true, now)
	want(false, now.Add(time.Hour))
	if err := Set(t.Context(), store, Override{Until: now}); err != nil {
		t.Fatal(err)
	}
	want(false, now)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := InForce(ctx, store, now); got || err == nil {
		t.Errorf("from a store that is down: %v, %v", got, err)
	}
}
