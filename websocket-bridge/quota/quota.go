// Package quota limits how many things callers hold at once: in all, and each of them.
package quota

import "sync"

// Quota counts. It is safe for concurrent use, and keeps nothing of a caller who holds nothing.
type Quota struct {
	all, each int

	mu    sync.Mutex
	held  int
	holds map[string]int // by caller
}

// New returns a Quota of which nothing is held. A limit of 0 is none.
func New(all, each int) *Quota { return &Quota{all: all, each: each, holds: map[string]int{}} }

// Limit says which limit is reached.
type Limit string

// The limits.
const (
	None Limit = ""
	All  Limit = "all"
	Each Limit = "caller"
)

// Take holds one thing more for a caller until back is called, once or more often; or it says which limit is reached.
func (q *Quota) Take(caller string) (back func(), reached Limit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.each > 0 && q.holds[caller] >= q.each:
		return nil, Each
	case q.all > 0 && q.held >= q.all:
		return nil, All
	}
	q.held++
	q.holds[caller]++
	return sync.OnceFunc(func() { q.giveBack(caller) }), None
}

func (q *Quota) giveBack(caller string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	if q.holds[caller]--; q.holds[caller] == 0 {
		delete(q.holds, caller)
	}
}

// Each returns the limit of one caller. 0 means none.
func (q *Quota) Each() int { return q.each }

// Held is how much is held in all.
func (q *Quota) Held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}
