package members

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
)

// A page buffers up to 32 KiB of each member, and a list without a limit some 150 KiB of up to 80 members. So at most
// maxLists lists of more than Many members run at once, and maxCallerLists of one caller. The others wait.
const (
	maxLists       = 16
	maxCallerLists = 4
)

// listSlots grants slots in the order of the requests, except to callers who have maxCallerLists.
type listSlots struct {
	mu       sync.Mutex
	inUse    int
	byCaller map[string]int
	waiting  []*listWaiter
}

type listWaiter struct {
	caller  string
	granted chan struct{} // closed when the slot is granted
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
	w := &listWaiter{caller, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	release = sync.OnceFunc(func() { s.release(caller) })
	select {
	case <-w.granted:
		return release, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 { // it was granted meanwhile
		return release, nil
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return nil, context.Cause(ctx)
}

// grant removes from waiting all that get a slot. mu must be locked.
func (s *listSlots) grant() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *listWaiter) bool {
		if s.inUse == maxLists || s.byCaller[w.caller] == maxCallerLists {
			return false
		}
		s.inUse++
		s.byCaller[w.caller]++
		close(w.granted)
		return true
	})
}

func (s *listSlots) release(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse--
	if s.byCaller[caller]--; s.byCaller[caller] == 0 {
		delete(s.byCaller, caller)
	}
	s.grant()
}
