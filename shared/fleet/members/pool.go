// Package members calls the clusters of the fleet on behalf of one caller, each call with a deadline of its own.
//
// Read Pool first, which has the connections and the caches. Client makes calls for one caller. Call is one request to
// one cluster, Answer is its response, and Failure explains why there is no usable response. Inventory lists the
// clusters and registries, and Kinds asks clusters about a resource.
//
// Invariants:
//   - A call fails at its deadline unless its response has begun. Call.Write selects a longer deadline.
//   - A panic over the response of a cluster becomes a Failure of that cluster.
//   - The kind of one object in a cluster is the cluster's own statement. It affects calls to that cluster alone.
//
// The package does not parse requests of clients. Caller has what a call needs of them.
package members

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
)

// Config is the configuration of a Pool. All fields are required except Freshness.
type Config struct {
	Objects Objects
	Members *cluster.Members
	// Freshness is the maximum age of the Inventory; 0 reads it for every request.
	Freshness time.Duration
	// Deadline is the maximum time until the response of a member begins.
	Deadline time.Duration
	Log      *slog.Logger
}

// Pool has the connections to the clusters of the fleet, and caches facts about them that are the same for all callers.
// It is safe for concurrent use.
type Pool struct {
	cfg       Config
	inventory *cache.Cache[*Inventory]
	kinds     *cache.Cache[map[string]ResourceKind]
	locations locations
	decoding  chan struct{} // has one element for each body that is being decoded
}

// NewPool returns a Pool.
func NewPool(cfg Config) *Pool {
	p := &Pool{
		cfg: cfg, inventory: newInventory(cfg.Objects, cfg.Freshness, cfg.Log), locations: newLocations(),
		decoding: make(chan struct{}, maxDecoding),
	}
	p.kinds = newKinds(p)
	return p
}

// Stats returns the counts of each cache by its name: "fleet" for the inventory, and "kinds".
func (p *Pool) Stats() map[string]cache.Stats {
	return map[string]cache.Stats{"fleet": p.inventory.Stats(), "kinds": p.kinds.Stats()}
}

// Deadline returns the maximum time until the response of a member begins.
func (p *Pool) Deadline() time.Duration { return p.cfg.Deadline }

// Log returns the logger.
func (p *Pool) Log() *slog.Logger { return p.cfg.Log }

// Each runs call for all targets in parallel, i is the index of the target. It returns the answers in the order of the
// targets.
func (p *Pool) Each(targets []Target, call func(i int, t Target) *Answer) []*Answer {
	answers := make([]*Answer, len(targets))
	done := make(chan struct{})
	for i, t := range targets {
		go func() { // ends with its deadline
			defer func() { done <- struct{}{} }()
			defer p.Recover(t.Name, func(e *Failure) { answers[i] = &Answer{Target: t, Err: e} })
			answers[i] = call(i, t)
		}()
	}
	for range targets {
		<-done
	}
	return answers
}

// Recover makes a panic over the response of a member a failure of that member. Otherwise the panic would end the
// process with all its streams. Callers defer it in every goroutine that reads responses.
func (p *Pool) Recover(cluster string, fail func(*Failure)) {
	if cause := recover(); cause != nil {
		p.cfg.Log.Error("a cluster's answer was not foreseen", "cluster", cluster, "panic", fmt.Sprint(cause),
			"stack", string(debug.Stack()))
		fail(NewFailure(cluster, http.StatusBadGateway, nil,
			"cluster %q gave an answer that the gateway cannot handle; its log has more", cluster))
	}
}
