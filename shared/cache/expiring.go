package cache

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Expiring is an LRU cache of values that expire. It compares wall-clock times, because the monotonic clock stops while
// a function is frozen. It drops entries from the future, since a clock that was set back no longer limits their age.
// It is safe for concurrent use.
type Expiring[K comparable, V any] struct {
	now      func() time.Time
	maxBytes int         // 0 for no limit
	size     func(V) int // with maxBytes

	mu      sync.Mutex
	bytes   int
	entries *simplelru.LRU[K, expiringEntry[V]]
}

type expiringEntry[V any] struct {
	value          V
	added, expires time.Time // expires is zero for an entry that does not expire
	bytes          int
}

// NewExpiring returns an empty cache of at most maxEntries values, which must be positive. A nil now is time.Now.
func NewExpiring[K comparable, V any](maxEntries int, now func() time.Time) *Expiring[K, V] {
	if now == nil {
		now = time.Now
	}
	c := &Expiring[K, V]{now: now}
	entries, err := simplelru.NewLRU(maxEntries, func(_ K, e expiringEntry[V]) { c.bytes -= e.bytes })
	if err != nil {
		panic(err)
	}
	c.entries = entries
	return c
}

// LimitBytes limits the size of all values together. Larger values are not cached. Call it before the first use.
func (c *Expiring[K, V]) LimitBytes(maxBytes int, size func(V) int) *Expiring[K, V] {
	c.maxBytes, c.size = maxBytes, size
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
	now := c.now().Round(0)
	if now.Before(e.added) || !e.expires.IsZero() && !now.Before(e.expires) {
		c.entries.Remove(key)
		return value, false
	}
	return e.value, true
}

// Add caches a value until expires, in place of the previous one. The zero time means that it does not expire.
func (c *Expiring[K, V]) Add(key K, value V, expires time.Time) {
	e := expiringEntry[V]{value: value, added: c.now().Round(0), expires: expires.Round(0)}
	if c.maxBytes > 0 {
		e.bytes = c.size(value)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
	if c.maxBytes > 0 && e.bytes > c.maxBytes {
		return
	}
	c.entries.Add(key, e)
	for c.bytes += e.bytes; c.maxBytes > 0 && c.bytes > c.maxBytes; {
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
