package fleet

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

// perishable is what a sized keeps: held returns how many bytes it counts for, and until when it is of use; the zero time is for ever.
type perishable interface {
	held() (size int, until time.Time)
}

// sized keeps what was used last: at most so many values, and so many bytes of them all. It is safe for concurrent use.
type sized[K comparable, V perishable] struct {
	mu         sync.Mutex
	kept       *simplelru.LRU[K, V]
	size, most int
	flights    singleflight.Group
}

// newSized returns one for so many values, which must be positive, and so many bytes.
func newSized[K comparable, V perishable](values, most int) *sized[K, V] {
	s := &sized[K, V]{most: most}
	var err error
	if s.kept, err = simplelru.NewLRU(values, func(_ K, v V) {
		size, _ := v.held()
		s.size -= size
	}); err != nil {
		panic(err) // values is positive
	}
	return s
}

// get returns what is kept and of use; the zero value if nothing is. It is not to be changed.
func (s *sized[K, V]) get(key K) (none V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.kept.Get(key)
	if !ok {
		return none
	}
	if _, until := v.held(); !until.IsZero() && !time.Now().Before(until) {
		return none
	}
	return v
}

// put keeps v in place of what was kept by key. What is over the size alone is not kept.
func (s *sized[K, V]) put(key K, v V) {
	size, _ := v.held()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Remove(key)
	s.kept.Add(key, v)
	for s.size += size; s.size > s.most; {
		s.kept.RemoveOldest()
	}
}

// once returns what have gives, or else what build makes, once for all callers of that name who come together.
func (s *sized[K, V]) once(name string, have func() (V, bool), build func() (V, error)) (V, error) {
	if v, ok := have(); ok {
		return v, nil
	}
	made, err, _ := s.flights.Do(name, func() (any, error) {
		if v, ok := have(); ok {
			return v, nil // a flight landed since the caller looked
		}
		return build()
	})
	if err != nil {
		var none V
		return none, err
	}
	return made.(V), nil
}
