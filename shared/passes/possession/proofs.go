package possession

import (
	"errors"
	"sync"
	"time"
)

// maxProofs is the limit for one cluster. An agent makes a proof for each connection and each renewal.
const maxProofs = 4096

// Proofs accepts each proof once in this process. It remembers ids for as long as Verify accepts their proofs. The zero
// value is ready for use. It is safe for concurrent use. It is no cache.Expiring, which would evict an id while its
// proof could be used again.
type Proofs struct {
	mu        sync.Mutex
	byCluster map[string]map[string]time.Time // by cluster and id: when the proof expires
}

// Use records the id that Verify returned. It returns an error if the id was used before, or if the cluster has too
// many ids. It never removes ids early, since their proofs would be valid again.
func (p *Proofs) Use(cluster, id string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byCluster == nil {
		p.byCluster = map[string]map[string]time.Time{}
	}
	used := p.byCluster[cluster]
	if used == nil {
		p.removeExpired(now)
		used = map[string]time.Time{}
		p.byCluster[cluster] = used
	}
	if end, ok := used[id]; ok && now.Before(end) {
		return errors.New("the proof was used before")
	}
	if len(used) >= maxProofs {
		removeExpiredIDs(used, now)
	}
	if len(used) >= maxProofs {
		return errors.New("the agents of the cluster have used too many proofs; try again in a minute")
	}
	used[id] = now.Add(2*ProofAge + time.Second) // a proof may be from the future by ProofAge
	return nil
}

func (p *Proofs) removeExpired(now time.Time) {
	for cluster, used := range p.byCluster {
		if removeExpiredIDs(used, now); len(used) == 0 {
			delete(p.byCluster, cluster)
		}
	}
}

func removeExpiredIDs(used map[string]time.Time, now time.Time) {
	for id, end := range used {
		if !now.Before(end) {
			delete(used, id)
		}
	}
}
