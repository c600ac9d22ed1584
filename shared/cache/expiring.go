package cache

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// ExpiringConfig configures an Expiring.
type ExpiringConfig[V any] struct {
	MaxEntries int              // at least 1
	MaxBytes   int              // of all values together, as counted by Size; 0 means no limit
	Size       func(V) int      // required with MaxBytes; returns the same number for a value each time
	Now        func() time.Time // nil means time.Now
}

// Expiring caches values until they expire. When it is full, it evicts the entries that were not used for the longest
// time. It compares wall-clock times, because the monotonic clock stops while a function is frozen. An entry from the
// future is not used: the clock was set back, and nothing limits the entry's age any more. Expiring is safe for
// concurrent use and has no goroutine.
type Expiring[K comparable, V any] struct {
	cfg ExpiringConfig[V]

	mu      sync.Mutex
	bytes   int
	entries *simplelru.LRU[K, expiringEntry[V]]
}

type expiringEntry[V any] struct {
	value          V
	added, expires time.Time // expires is zero for an entry that does not expire
	bytes          int
}

// NewExpiring returns an empty cache. It panics if MaxEntries is not positive.
func NewExpiring[K comparable, V any](cfg ExpiringConfig[V]) *Expiring[K, V] {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Expiring[K, V]{cfg: cfg}
	entries, err := simplelru.NewLRU(cfg.MaxEntries, func(_ K, e expiringEntry[V]) { c.bytes -= e.bytes })
	if err != nil {
		panic(err)
	}
	c.entries = entries
	return c
}

// Get returns the value of key, and whether there is one that has not expired.
func (c *Expiring[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries.Get(key)
	if !ok {
		return value, false
	}
	now := c.cfg.Now().Round(0)
	if now.Before(e.added) || !e.expires.IsZero() && !now.Before(e.expires) {
		c.entries.Remove(key)
		return value, false
	}
	return e.value, true
}

// Add caches a value until expires, in place of the previous value of key. The zero time means that the value does not
// expire. A value larger than MaxBytes is not cached.
func (c *Expiring[K, V]) Add(key K, value V, expires time.Time) {
	e := expiringEntry[V]{value: value, added: c.cfg.Now().Round(0), expires: expires.Round(0)}
	if c.cfg.MaxBytes > 0 {
		e.bytes = c.cfg.Size(value)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
	if c.cfg.MaxBytes > 0 && e.bytes > c.cfg.MaxBytes {
		return
	}
	c.entries.Add(key, e)
	for c.bytes += e.bytes; c.cfg.MaxBytes > 0 && c.bytes > c.cfg.MaxBytes; {
		c.entries.RemoveOldest()
	}
}

// Remove removes the value of key, if there is one.
func (c *Expiring[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
}

// Len returns the number of entries, including those that have expired and were not asked for since.
func (c *Expiring[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len()
}
