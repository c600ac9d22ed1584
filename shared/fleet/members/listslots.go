package members

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/quota"
	"github.com/clusterpass/clusterpass/shared/status"
)

// A page buffers up to 32 KiB of each member, and some 45 KiB more to decompress it. A list without a limit buffers
// some 150 KiB of up to 80 members, and 375 KiB if there are at most 128. So at most maxLists lists of more than Many
// members run at once, and maxCallerLists of one caller. The others wait.
const (
	maxLists       = 16
	maxCallerLists = 4
)

// listSlots grants slots in the order of the requests, except to callers who have maxCallerLists.
type listSlots struct {
	slots *quota.Quota

	mu      sync.Mutex
	waiting []*listWaiter
}

type listWaiter struct {
	caller  string
	granted chan func() // receives the release of the slot
}

// AcquireListSlot blocks until a list of n members may begin. Call release at its end. It fails with 429 after the
// Deadline of a call, or if the caller has gone.
func AcquireListSlot(c *Client, n int) (release func(), err error) {
	if n <= Many {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeoutCause(c.Context(), c.Deadline(), tooManyLists())
	defer cancel()
	return c.lists.acquire(ctx, cmp.Or(c.caller.User.Impersonator, c.caller.User.Name))
}

func tooManyLists() error {
	err := status.New(status.TooManyRequests, "", "the list was refused: of lists of over %d clusters, at most %d run at "+
		"once, and %d of one user; try again later, or list fewer clusters", Many, maxLists, maxCallerLists)
	err.RetryAfter = time.Second // client-go repeats up to ten times without output
	return err
}

// acquire fails with the cause of ctx.
func (s *listSlots) acquire(ctx context.Context, caller string) (release func(), err error) {
	w := &listWaiter{caller, make(chan func(), 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	select {
	case release = <-w.granted:
		return release, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 { // it was granted meanwhile
		return <-w.granted, nil
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return nil, context.Cause(ctx)
}

// grant removes from waiting all that get a slot. mu must be locked.
func (s *listSlots) grant() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *listWaiter) bool {
		release, reached := s.slots.Acquire(w.caller)
		if reached != quota.None {
			return false
		}
		w.granted <- func() { s.release(release) }
		return true
	})
}

// release returns a slot, and grants those that became free.
func (s *listSlots) release(slot func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot()
	s.grant()
}
