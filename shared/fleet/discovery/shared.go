package discovery

import (
	"golang.org/x/sync/singleflight"

	"github.com/clusterpass/clusterpass/shared/cache"
)

// sharedCache is a cache whose values are built once for concurrent callers. It is safe for concurrent use.
type sharedCache[K comparable, V any] struct {
	*cache.Expiring[K, V]
	flights singleflight.Group
}

// newSharedCache returns a cache of at most maxEntries values, and at most maxBytes of their sizes.
func newSharedCache[K comparable, V any](maxEntries, maxBytes int, size func(V) int) *sharedCache[K, V] {
	return &sharedCache[K, V]{Expiring: cache.NewExpiring[K, V](maxEntries, nil).LimitBytes(maxBytes, size)}
}

// getOrBuild returns the result of get, or builds the value once for concurrent callers with that name.
func (c *sharedCache[K, V]) getOrBuild(name string, get func() (V, bool), build func() (V, error)) (V, error) {
	if v, ok := get(); ok {
		return v, nil
	}
	built, err, _ := c.flights.Do(name, func() (any, error) {
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
