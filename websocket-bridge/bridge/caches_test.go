package bridge

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

type moody struct {
	secrets.Store
	down atomic.Bool
}

func (m *moody) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	if m.down.Load() {
		return nil, secrets.Unavailable(errors.New("down"), time.Second)
	}
	return m.Store.Get(ctx, name)
}

func TestCacheMetrics(t *testing.T) {
	hs := serve(t, Limits{}, Drain{}, stays)
	store := &moody{Store: hs.Secrets}
	clock := testingclock.NewFakeClock(time.Now())
	fresh := cluster.Remote
	fresh.Patience = 0 // so that a slow machine does not count as a hanging store
	members := cluster.NewMembers(cluster.Config{
		Objects: hs.Objects, Secrets: store, Freshness: fresh, Log: slog.New(slog.DiscardHandler),
		Now: clock.Now,
	})
	defer members.Close()
	hs.bridge.CountCaches(members.Stats)
	get := func() {
		t.Helper()
		if _, err := members.Get(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
	}
	get()
	get()
	store.down.Store(true)
	clock.Step(10 * time.Minute) // every entry has expired
	get()
	w := httptest.NewRecorder()
	hs.bridge.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`clusterpass_cache_hits_total{cache="objects"} 1`, `clusterpass_cache_hits_total{cache="secrets"} 1`,
		`clusterpass_cache_misses_total{cache="objects"} 2`, `clusterpass_cache_misses_total{cache="secrets"} 2`,
		`clusterpass_cache_stale_total{cache="objects"} 0`, `clusterpass_cache_stale_total{cache="secrets"} 1`,
		`clusterpass_cache_errors_total{cache="objects"} 0`, `clusterpass_cache_errors_total{cache="secrets"} 1`,
		`clusterpass_cache_entries{cache="objects"} 1`, `clusterpass_cache_evictions_total{cache="secrets"} 0`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}
