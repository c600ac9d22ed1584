package fleet

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// What is kept of discovery: the union for one caller, for a while.
const (
	discoveryMax  = 64
	discoverySize = 32 << 20        // bytes of all that is kept, as JSON
	discoveryTTL  = 5 * time.Second // a kind that is new shall be found soon; after all were asked
)

// kept is a union, and until when it is of use.
type kept struct {
	union    discoveryv2.APIGroupDiscoveryList
	failures []*members.Failure
	until    time.Time
	size     int
}

func (k *kept) held() (int, time.Time) { return k.size, k.until }

// unions keeps what discovery made. It is safe for concurrent use.
type unions struct {
	*sized[[sha256.Size]byte, *kept]
}

func newUnions() *unions {
	return &unions{newSized[[sha256.Size]byte, *kept](discoveryMax, discoverySize)}
}

func (u *unions) put(key [sha256.Size]byte, k *kept) {
	k.until = k.until.Round(0) // wall clock: the monotonic one may stop with the process
	data, err := json.Marshal(k.union)
	if err != nil {
		return // it cannot be answered either
	}
	k.size = len(data)
	for _, e := range k.failures {
		k.size += len(e.Raw) + len(e.Message)
	}
	u.sized.put(key, k)
}
