package discovery

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"time"

	"golang.org/x/sync/singleflight"
	discoveryv2 "k8s.io/api/apidiscovery/v2"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// Caches keep discovery and OpenAPI between requests. They are safe for concurrent use.
type Caches struct {
	unions  *unions
	schemas *schemas
	ttl     time.Duration // of unions, and of documents without a digest
}

// NewCaches returns empty Caches. ttl is the time after which clients find new kinds.
func NewCaches(ttl time.Duration) *Caches { return &Caches{newUnions(), newSchemas(), ttl} }

const (
	discoveryMax  = 64
	discoverySize = 32 << 20 // bytes of all unions as JSON
)

const (
	schemasMax  = 256
	schemasSize = 32 << 20 // bytes of all documents
)

// cachedUnion is a union of discovery, with the failures of members that it lacks.
type cachedUnion struct {
	union    discoveryv2.APIGroupDiscoveryList
	failures []*members.Failure
}

func (u *cachedUnion) size() int {
	data, err := json.Marshal(u.union)
	if err != nil {
		return math.MaxInt // no response can have it either
	}
	size := len(data)
	for _, e := range u.failures {
		size += len(e.Raw) + len(e.Message)
	}
	return size
}

type unions = sharedCache[members.Digest, *cachedUnion]

func newUnions() *unions {
	return newSharedCache[members.Digest](discoveryMax, discoverySize, (*cachedUnion).size)
}

// schema is a document of OpenAPI, or the index of documents.
type schema struct {
	body     []byte
	index    map[string][]source // of an index, by the path of a group version
	failures []*members.Failure  // of members that the document lacks
}

type source struct {
	url   [sha256.Size]byte // a digest of its URL, which has a digest of the document
	of    members.Entry     // the first member that has it, which serves it
	votes int               // number of members that have it
}

const sourceSize = 64 // bytes of a source

func (d *schema) size() int {
	size := len(d.body)
	for path, sources := range d.index {
		size += len(path) + sourceSize*cap(sources)
	}
	return size
}

type schemas = sharedCache[members.Digest, *schema]

func newSchemas() *schemas {
	return newSharedCache[members.Digest](schemasMax, schemasSize, (*schema).size)
}

// sharedCache is a cache whose values are built once for concurrent callers. It is safe for concurrent use.
type sharedCache[K comparable, V any] struct {
	*cache.Expiring[K, V]
	flights singleflight.Group
}

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
