package recording

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

const (
	// maxWrites is how many parts of all sessions of a Recorder are written at the same time.
	maxWrites = 32
	// maxCallerWrites is how many parts of all sessions of one caller are written at the same time.
	maxCallerWrites = maxWrites / 4
)

// caller identifies the user whose sessions share slots.
type caller struct {
	user  string
	token string // SHA-256, if only the member identifies the user
}

// caller returns who shares slots with the session: the user of the credential.
func (i *Info) caller() caller {
	return caller{cmp.Or(i.Impersonator, i.User), i.TokenSHA256}
}

// ofFirstPart returns who shares slots for the first part of a session. The member accepts a token after that, and a
// client can make up any number of tokens. So all tokens share slots.
func (c caller) ofFirstPart() caller {
	if c.token == "" {
		return c
	}
	return caller{token: "any"}
}

// slots limits how many parts are written at the same time. A free slot goes to the waiting caller that uses the fewest
// slots. So a caller with many sessions waits for itself. It is safe for concurrent use.
type slots struct {
	mu      sync.Mutex
	free    int
	used    map[caller]int
	waiting []*waiter // the first one waits longest
}

type waiter struct {
	caller  caller
	granted chan struct{} // closed when the waiter has a slot
}

func newSlots() *slots { return &slots{free: maxWrites, used: map[caller]int{}} }

// acquire blocks until c may write a part, for StoreTimeout at most. The caller must call release.
func (s *slots) acquire(ctx context.Context, c caller) error {
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	w := &waiter{c, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grantLocked()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.waiting, w)
	if at < 0 {
		return nil // granted meanwhile
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	return fmt.Errorf("wait for a slot to write a part: %d parts are written, of which %d are of the same user: %w",
		maxWrites-s.free, s.used[c], ctx.Err())
}

func (s *slots) release(c caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.used[c]--; s.used[c] == 0 {
		delete(s.used, c)
	}
	s.grantLocked()
}

// grantLocked gives free slots to waiters.
func (s *slots) grantLocked() {
	for s.free > 0 {
		next, fewest := -1, maxCallerWrites
		for i, w := range s.waiting {
			if n := s.used[w.caller]; n < fewest {
				next, fewest = i, n
			}
		}
		if next < 0 {
			return
		}
		w := s.waiting[next]
		s.waiting = slices.Delete(s.waiting, next, next+1)
		s.free--
		s.used[w.caller]++
		close(w.granted)
	}
}
