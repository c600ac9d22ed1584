// Package quota limits concurrent use, in all and by caller.
package quota

import "sync"

// Quota counts slots in use. It is safe for concurrent use. It stores nothing about a caller without slots.
type Quota struct {
	all, each int // limits; 0 means none

	mu       sync.Mutex
	inUse    int
	byCaller map[string]int
}

// New returns a Quota with limits for all callers together and for each caller. 0 means no limit.
func New(all, each int) *Quota { return &Quota{all: all, each: each, byCaller: map[string]int{}} }

// Limit identifies the limit that refused a slot.
type Limit string

// The limits.
const (
	None Limit = ""
	All  Limit = "all"
	Each Limit = "caller"
)

// Acquire acquires a slot for a caller. If a limit is reached, it returns that limit and no release. release may be
// called repeatedly.
func (q *Quota) Acquire(caller string) (release func(), reached Limit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.each > 0 && q.byCaller[caller] >= q.each:
		return nil, Each
	case q.all > 0 && q.inUse >= q.all:
		return nil, All
	}
	q.inUse++
	q.byCaller[caller]++
	return sync.OnceFunc(func() { q.release(caller) }), None
}

func (q *Quota) release(caller string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inUse--
	if q.byCaller[caller]--; q.byCaller[caller] == 0 {
		delete(q.byCaller, caller)
	}
}

// Each returns the limit of one caller. 0 means none.
func (q *Quota) Each() int { return q.each }

// InUse returns the number of slots in use by all callers.
func (q *Quota) InUse() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inUse
}
