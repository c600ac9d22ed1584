package discovery

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

// expiring is a cached value. sizeAndExpiry returns its size in bytes and its expiry; the zero time is never.
type expiring interface {
	sizeAndExpiry() (size int, until time.Time)
}

// sized is a cache with a bound of entries and a bound of bytes. It evicts the entries that were not used for the
// longest time. It is safe for concurrent use.
type sized[K comparable, V expiring] struct {
	mu            sync.Mutex
	entries       *simplelru.LRU[K, V]
	size, maxSize int
	flights       singleflight.Group
}

// newSized returns a cache of at most maxEntries values, which must be positive, and at most maxSize bytes.
func newSized[K comparable, V expiring](maxEntries, maxSize int) *sized[K, V] {
	s := &sized[K, V]{maxSize: maxSize}
	var err error
	if s.entries, err = simplelru.NewLRU(maxEntries, func(_ K, v V) {
		size, _ := v.sizeAndExpiry()
		s.size -= size
	}); err != nil {
		panic(err) // maxEntries is positive
	}
	return s
}

// get returns the value of a key, or the zero value if there is none or it has expired. Callers must not change it.
func (s *sized[K, V]) get(key K) (none V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.entries.Get(key)
	if !ok {
		return none
	}
	if _, until := v.sizeAndExpiry(); !until.IsZero() && !time.Now().Before(until) {
		return none
	}
	return v
}

// put replaces the value of a key. A value over the bound of bytes is not kept.
func (s *sized[K, V]) put(key K, v V) {
	size, _ := v.sizeAndExpiry()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.Remove(key)
	s.entries.Add(key, v)
	for s.size += size; s.size > s.maxSize; {
		s.entries.RemoveOldest()
	}
}

// getOrBuild returns the result of get, or builds the value once for concurrent callers with that name.
func (s *sized[K, V]) getOrBuild(name string, get func() (V, bool), build func() (V, error)) (V, error) {
	if v, ok := get(); ok {
		return v, nil
	}
	built, err, _ := s.flights.Do(name, func() (any, error) {
		if v, ok := get(); ok {
			return v, nil // built since the first call of get
		}
		return build()
	})
	if err != nil {
		var none V
		return none, err
	}
	return built.(V), nil
}
