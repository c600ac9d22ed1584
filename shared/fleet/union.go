package fleet

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
)

// What is kept of discovery: the union for one caller, for a while.
const (
	discoveryMax  = 64
	discoverySize = 32 << 20 // bytes of all that is kept, as JSON
	discoveryTTL  = 30 * time.Second
	partialTTL    = 5 * time.Second // after all were asked
)

// kept is a union, and until when it is of use.
type kept struct {
	union    discoveryv2.APIGroupDiscoveryList
	failures []*failure
	until    time.Time
	size     int
}

// unions keeps what discovery made. It is safe for concurrent use.
type unions struct {
	mu   sync.Mutex
	kept *simplelru.LRU[[sha256.Size]byte, *kept]
	size int
}

func newUnions() *unions {
	u := &unions{}
	var err error
	if u.kept, err = simplelru.NewLRU(discoveryMax, func(_ [sha256.Size]byte, k *kept) { u.size -= k.size }); err != nil {
		panic(err) // discoveryMax is positive
	}
	return u
}

// get returns what is kept and of use; nil if nothing is. It is not to be changed.
func (u *unions) get(key [sha256.Size]byte) *kept {
	u.mu.Lock()
	defer u.mu.Unlock()
	if k, ok := u.kept.Get(key); ok && time.Now().Before(k.until) {
		return k
	}
	return nil
}

func (u *unions) put(key [sha256.Size]byte, k *kept) {
	k.until = k.until.Round(0) // wall clock: the monotonic one may stop with the process
	data, err := json.Marshal(k.union)
	if err != nil {
		return // it cannot be answered either
	}
	k.size = len(data)
	for _, e := range k.failures {
		k.size += len(e.raw) + len(e.message)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept.Remove(key)
	u.kept.Add(key, k)
	for u.size += k.size; u.size > discoverySize; {
		u.kept.RemoveOldest()
	}
}
