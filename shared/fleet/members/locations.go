package members

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
)

// Once the cluster that had an object last has responded, reads wait no longer than the grace period for the others,
// which may hang. Writes and streams wait for all.
const (
	locationsMax = 10_000
	locationsTTL = 5 * time.Minute
)

// ErrFoundElsewhere cancels calls that a read no longer waits for.
var ErrFoundElsewhere = errors.New("the object is elsewhere")

// Digest is the hash of all values that a cache entry depends on. Hashing bounds the memory of a key.
type Digest [sha256.Size]byte

// DigestOf hashes values that consist of strings, numbers and booleans.
func DigestOf(values ...any) Digest {
	data, err := json.Marshal(values)
	if err != nil {
		panic(err) // such values always marshal
	}
	return sha256.Sum256(data)
}

func newLocations() *cache.Expiring[Digest, uint64] {
	return cache.NewExpiring[Digest, uint64](locationsMax, nil)
}

// RememberLocation records the id of the cluster that has an object. The key must cover the object and the caller.
func (p *Pool) RememberLocation(key Digest, id uint64) {
	p.locations.Add(key, id, time.Now().Add(locationsTTL))
}

// LastLocation returns the id of the cluster that had the object.
func (p *Pool) LastLocation(key Digest) (id uint64, ok bool) { return p.locations.Get(key) }
