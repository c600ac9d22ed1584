// Package members calls the clusters of the fleet on behalf of one caller. Read Pool and Client first.
//
// Invariants:
//   - A call fails at its deadline unless its response has begun. Writes have a longer deadline.
//   - A panic over the response of a cluster becomes a Failure of that cluster.
//   - Kinds reports for each cluster the kinds that the cluster itself sent, never those of another one.
package members

import (
	"log/slog"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/quota"
)

// Config is the configuration of a Pool. All fields are required except Freshness.
type Config struct {
	Objects   Objects
	Members   *cluster.Members
	Freshness time.Duration // maximum age of the Inventory; 0 reads it for every request
	Deadline  time.Duration // until the response to a read begins; writes have writeDeadline
	// GracePeriod is how long a read or review waits for other clusters once one response suffices.
	GracePeriod time.Duration
	Now         func() time.Time // clock of RecentlyHung
	Log         *slog.Logger
}

// Pool has the connections to the clusters of the fleet, and caches facts about them. It is safe for concurrent use.
type Pool struct {
	cfg       Config
	inventory *cache.Cache[*Inventory]
	kinds     *cache.Cache[map[string]ResourceKind]
	locations *cache.Expiring[Digest, uint64] // the ids of clusters that had objects
	hung      *cache.Expiring[Digest, *Failure]
	decoding  chan struct{} // has one element for each body that is being decoded
	lists     listSlots
}

// NewPool returns a Pool.
func NewPool(cfg Config) *Pool {
	p := &Pool{
		cfg: cfg, inventory: newInventory(cfg.Objects, cfg.Freshness, cfg.Log), locations: newLocations(),
		hung: cache.NewExpiring[Digest, *Failure](hungMax, cfg.Now), decoding: make(chan struct{}, maxDecoding),
		lists: listSlots{slots: quota.New(maxLists, maxCallerLists)},
	}
	p.kinds = newKinds(cfg, p.readKinds)
	return p
}

// Stats returns the statistics of two caches: "fleet" for the inventory, and "kinds".
func (p *Pool) Stats() map[string]cache.Stats {
	return map[string]cache.Stats{"fleet": p.inventory.Stats(), "kinds": p.kinds.Stats()}
}

// Deadline returns the maximum time until the response of a member to a read begins.
func (p *Pool) Deadline() time.Duration { return p.cfg.Deadline }

// GracePeriod returns how long a read or review waits for other clusters once one response suffices.
func (p *Pool) GracePeriod() time.Duration { return p.cfg.GracePeriod }

// Log returns the logger.
func (p *Pool) Log() *slog.Logger { return p.cfg.Log }
