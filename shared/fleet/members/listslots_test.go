package members

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

func clientOf(ctx context.Context, p *Pool, user string) *Client {
	return p.Client(Caller{
		Request: httptest.NewRequestWithContext(ctx, "GET", "/fleet/api/v1/pods", nil), User: &identity.User{Name: user},
	})
}

// TestListSlots fails if one caller, or all callers, could run more lists at once, or if a slot was lost.
func TestListSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(Config{Deadline: 10 * time.Second})
		var running, refused atomic.Int32
		list := func(user string, members int, lasts time.Duration) {
			release, err := AcquireListSlot(clientOf(t.Context(), p, user), members)
			var e *status.Error
			if errors.As(err, &e) && e.Reason == status.TooManyRequests && e.RetryAfter > 0 {
				refused.Add(1)
				return
			} else if err != nil {
				t.Error(err)
				return
			}
			running.Add(1)
			time.Sleep(lasts)
			running.Add(-1)
			release()
		}
		start := func(n int, user string, members int, lasts time.Duration) {
			for range n {
				go list(user, members, lasts)
			}
			synctest.Wait()
		}
		check := func(when string, wantRunning, wantRefused int32) {
			t.Helper()
			if running.Load() != wantRunning || refused.Load() != wantRefused {
				t.Errorf("%s: %d running, %d refused, want %d and %d", when, running.Load(), refused.Load(), wantRunning,
					wantRefused)
			}
		}
		start(maxCallerLists+2, "eve", Many+1, 20*time.Second)
		check("of one caller", maxCallerLists, 0)
		start(5, "eve", Many, time.Second)
		check("of few members", maxCallerLists+5, 0)
		for i := range maxLists {
			start(1, fmt.Sprint("user", i), Many+1, 20*time.Second)
		}
		check("of many callers", maxLists+5, 0)
		time.Sleep(11 * time.Second)
		check("after the deadline", maxLists, maxCallerLists+2)
		start(1, "zoe", Many+1, time.Second)
		time.Sleep(9100 * time.Millisecond)
		check("when the first ones have ended", 1, maxCallerLists+2)
		time.Sleep(time.Minute)
		check("at the end", 0, maxCallerLists+2)
		s := &p.lists
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.slots.InUse() != 0 || len(s.waiting) != 0 {
			t.Errorf("slots remain: %d %v", s.slots.InUse(), s.waiting)
		}
	})
}

// TestListSlotOfAbsentCaller fails if a request whose caller has gone stayed in the queue.
func TestListSlotOfAbsentCaller(t *testing.T) {
	p := NewPool(Config{Deadline: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	for range maxCallerLists {
		if _, err := AcquireListSlot(clientOf(ctx, p, "eve"), Many+1); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	_, err := AcquireListSlot(clientOf(ctx, p, "eve"), Many+1)
	p.lists.mu.Lock()
	defer p.lists.mu.Unlock()
	if !errors.Is(err, context.Canceled) || len(p.lists.waiting) != 0 {
		t.Errorf("%v, %d wait", err, len(p.lists.waiting))
	}
}
