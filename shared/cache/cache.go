// Package cache keeps what was read from a store for a while, in one process.
//
// One flight a key; entries end after a TTL with jitter, so that many processes do not ask at once; that a key is missing is
// remembered for a short time; the number of entries is bounded. While the store is down, entries that have ended still
// serve, for a bounded time; never once the store has said that the key is missing. That a store hangs can be remembered where none serves.
//
// Time is the wall clock, since the monotonic one stands still in a frozen function.
package cache

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
)

// Config configures a Cache. Durations of 0 switch off what they bound.
type Config struct {
	Name     string        // for the log: "secrets"
	Max      int           // entries; at least 1
	TTL      time.Duration // how long an entry is fresh, shortened by up to a tenth
	Negative time.Duration // how long a missing key is not asked for again
	// Stale is how long after it was read an entry may serve while the store is down.
	Stale time.Duration
	// Patience is how long Get waits for a store that hangs where an entry can be served stale. The fetch goes on and its
	// answer counts when it comes. 0 waits for as long as the fetch takes.
	Patience time.Duration
	// Retry is how long a store that was down is not asked again for a key that can be served stale, and how often Refresh
	// and Renew ask for one key.
	Retry time.Duration
	// Hung is for how long it is remembered that the store failed, but not within Patience, where no entry can be served: for Retry Get
	// fails at once then, and after that waits no longer than Patience. 0 waits each time for as long as the fetch takes.
	Hung    time.Duration
	Timeout time.Duration // of one fetch, whatever the caller's deadline
	// Missing says that an error means the key does not exist, Down that the store cannot answer now. Other errors are
	// passed on, and nothing serves in their place.
	Missing, Down func(error) bool
	Now           func() time.Time // nil means time.Now
	Log           *slog.Logger     // nil means slog.Default()
}

// Stats count since the start of the process.
type Stats struct {
	Hits      uint64 // answers from a fresh entry, also that a key is missing
	Fetches   uint64 // questions to the store
	StaleHits uint64 // answers from an entry that had ended, since the store was down
	Errors    uint64 // questions that the store did not answer; that a key is missing is an answer
	Evicted   uint64 // entries that made room for others
	Size      int    // entries now, also of keys that are missing
}

// Cache caches values of V by key. It is safe for concurrent use and has no goroutine of its own.
type Cache[V any] struct {
	cfg     Config
	fetch   func(ctx context.Context, key string) (V, error)
	flights singleflight.Group

	mu      sync.Mutex
	flying  map[string]time.Time // since when, of flights
	entries *lru.Cache[string, entry[V]]
	missing *lru.Cache[string, entry[V]] // apart, so that names which nobody has push out none that somebody has
	warned  time.Time

	hits, fetches, stale, errors, evicted atomic.Uint64
}

// entry is what is known of a key: a value, or the error that it is missing.
type entry[V any] struct {
	value   V
	err     error
	read    time.Time // when the store said so
	renewed time.Time // when Refresh or Renew last made it say so
	expires time.Time
	stale   bool // it serves beyond its time
	hung    bool // err is that the store hung, not that the key is missing
}

// New returns an empty cache over fetch.
func New[V any](cfg Config, fetch func(ctx context.Context, key string) (V, error)) *Cache[V] {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	entries, err := lru.New[string, entry[V]](cfg.Max)
	if err != nil {
		panic(err) // Max is not positive
	}
	missing, err := lru.New[string, entry[V]](cfg.Max)
	if err != nil {
		panic(err) // the same
	}
	return &Cache[V]{cfg: cfg, fetch: fetch, entries: entries, missing: missing, flying: map[string]time.Time{}}
}

func (c *Cache[V]) now() time.Time { return c.cfg.Now().Round(0) }

// Get returns the value of key, from the cache or the store.
func (c *Cache[V]) Get(ctx context.Context, key string) (V, error) {
	e, ok := c.lookup(key)
	if ok && c.now().Before(e.expires) {
		return c.served(e)
	}
	return c.ask(ctx, key, e, ok, false)
}

// CanServe reports whether Get would answer from an entry if the store were down.
func (c *Cache[V]) CanServe(key string) bool {
	e, ok := c.lookup(key)
	return ok && (c.now().Before(e.expires) || c.mayServeStale(e))
}

// Refresh is Get for a key whose value may have changed, however fresh the entry is. An entry that was renewed a moment ago is
// returned as it is.
func (c *Cache[V]) Refresh(ctx context.Context, key string) (V, error) {
	e, ok := c.lookup(key)
	if ok && c.renewedJustNow(e) {
		return c.served(e)
	}
	return c.ask(ctx, key, e, ok, true)
}

// Renew asks the store although the entry may be fresh, because outdated says that its value does not work; so it waits for the store
// for as long as the fetch takes. An entry that is not outdated, or was renewed a moment ago, is returned as it is.
func (c *Cache[V]) Renew(ctx context.Context, key string, outdated func(V) bool) (V, error) {
	e, ok := c.lookup(key)
	if ok && (c.renewedJustNow(e) || e.err == nil && !outdated(e.value)) {
		return c.served(e)
	}
	return c.wait(ctx, c.start(ctx, key, true), nil)
}

// renewedJustNow reports whether it is too early to ask the store for e again, whoever wants to.
func (c *Cache[V]) renewedJustNow(e entry[V]) bool {
	if e.err != nil {
		return c.now().Before(e.expires)
	}
	return c.now().Sub(e.renewed) < c.cfg.Retry
}

// ask asks the store. Where e, which is known of key if ok, can serve in its place, it waits no longer than Patience.
func (c *Cache[V]) ask(ctx context.Context, key string, e entry[V], ok, fresh bool) (V, error) {
	asked, flight := c.now(), c.start(ctx, key, fresh)
	if c.cfg.Patience > 0 && ok && c.mayServeStale(e) {
		patience := time.NewTimer(c.cfg.Patience)
		defer patience.Stop()
		v, err := c.wait(ctx, flight, patience.C)
		if !errors.Is(err, errHangs) {
			return v, err
		}
		var renewed time.Time
		if fresh {
			renewed = asked
		}
		if e, ok = c.prolong(key, renewed, err); ok {
			return c.served(e)
		}
	}
	return c.wait(ctx, flight, nil)
}

// Stats returns the counters.
func (c *Cache[V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Hits: c.hits.Load(), Fetches: c.fetches.Load(), StaleHits: c.stale.Load(), Errors: c.errors.Load(),
		Evicted: c.evicted.Load(), Size: c.entries.Len() + c.missing.Len(),
	}
}

func (c *Cache[V]) lookup(key string) (entry[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.missing.Get(key); ok {
		return e, true
	}
	return c.entries.Get(key)
}

// served counts an answer from an entry and gives it.
func (c *Cache[V]) served(e entry[V]) (V, error) {
	if e.stale {
		c.stale.Add(1)
	} else {
		c.hits.Add(1)
	}
	return e.value, e.err
}

// start joins the flight for key, and begins it if there is none. It does not end with the caller that began it: others may
// wait for it. A fresh one does not join one of another sort: that may have begun before what the caller knows. One that is older than it
// may be was frozen with the process, and what it waits for is gone: nobody joins that.
func (c *Cache[V]) start(ctx context.Context, key string, fresh bool) <-chan singleflight.Result {
	name := key
	if fresh {
		name = "fresh " + key
	}
	c.mu.Lock()
	if began, ok := c.flying[name]; ok {
		if age := c.now().Sub(began); age < 0 || age > c.cfg.Timeout {
			c.flights.Forget(name)
		}
	}
	c.mu.Unlock()
	return c.flights.DoChan(name, func() (any, error) {
		defer c.lands(name, c.takesOff(name))
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
		defer cancel()
		if e, ok := c.lookup(key); ok && !fresh && c.now().Before(e.expires) {
			return e, e.err // a flight landed since the caller looked
		}
		e, err := c.read(ctx, key, fresh)
		return e, err
	})
}

// takesOff notes when a flight begins, by the wall clock: the other may stop with a frozen process.
func (c *Cache[V]) takesOff(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.flying[name] = now
	return now
}

// lands forgets a flight, unless another has begun since.
func (c *Cache[V]) lands(name string, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying[name].Equal(began) {
		delete(c.flying, name)
	}
}

// errHangs says that the caller has waited long enough.
var errHangs = errors.New("it does not answer for a while")

func (c *Cache[V]) wait(ctx context.Context, flight <-chan singleflight.Result, patience <-chan time.Time) (V, error) {
	var zero V
	select {
	case r := <-flight:
		e, _ := r.Val.(entry[V])
		if e.stale {
			c.stale.Add(1)
		}
		return e.value, r.Err
	case <-patience:
		return zero, errHangs
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// read asks the store and remembers what it says. An entry is as old as the question.
func (c *Cache[V]) read(ctx context.Context, key string, fresh bool) (entry[V], error) {
	c.fetches.Add(1)
	e := entry[V]{read: c.now()}
	if fresh {
		e.renewed = e.read
	}
	v, err := c.fetch(ctx, key)
	switch {
	case err == nil:
		ttl := c.cfg.TTL - time.Duration(rand.Int64N(int64(c.cfg.TTL)/10+1)) //nolint:gosec // jitter
		e.value, e.expires = v, e.read.Add(ttl)
		c.store(key, e)
		return e, nil
	case c.cfg.Missing(err):
		e.err, e.expires = err, e.read.Add(c.cfg.Negative)
		c.store(key, e)
		return e, err
	}
	c.errors.Add(1)
	if !c.cfg.Down(err) {
		c.forget(key) // a store that refuses means it
		return entry[V]{}, err
	}
	if old, ok := c.prolong(key, e.renewed, err); ok {
		return old, nil
	}
	if now := c.now(); c.cfg.Hung > 0 && now.Sub(e.read) >= c.cfg.Patience {
		e.err, e.hung, e.expires = err, true, now.Add(c.cfg.Retry)
		c.store(key, e)
	}
	return entry[V]{}, err
}

// mayServeStale reports whether e may serve while the store is down.
func (c *Cache[V]) mayServeStale(e entry[V]) bool {
	if e.hung {
		return c.now().Sub(e.read) <= c.cfg.Timeout+c.cfg.Hung
	}
	return e.err == nil && c.now().Sub(e.read) <= c.cfg.Stale
}

// prolong lets the entry of key, if there is one that may, serve for a little longer. renewed is when the store was asked to
// renew it, if it was; why is what the store does instead.
func (c *Cache[V]) prolong(key string, renewed time.Time, why error) (entry[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries.Get(key)
	if m, gone := c.missing.Get(key); gone && m.hung && errors.Is(why, errHangs) {
		m.expires = c.now().Add(c.cfg.Retry)
		c.missing.Add(key, m)
		return m, true
	} else if gone || !ok || !c.mayServeStale(e) {
		return entry[V]{}, false
	}
	if !renewed.IsZero() {
		e.renewed = renewed
	}
	now := c.now()
	if e.stale = !now.Before(e.expires) || e.stale; e.stale {
		e.expires = now.Add(c.cfg.Retry)
		if end := e.read.Add(c.cfg.Stale); e.expires.After(end) {
			e.expires = end
		}
	}
	c.entries.Add(key, e)
	c.warn(now, why)
	return e, true
}

// store remembers e, unless something newer is known: a flight may land after one that began later.
func (c *Cache[V]) store(key string, e entry[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range []*lru.Cache[string, entry[V]]{c.entries, c.missing} {
		if old, ok := known.Peek(key); ok && old.read.After(e.read) {
			return
		}
	}
	if e.err != nil {
		c.entries.Remove(key)
		c.add(c.missing, key, e)
		return
	}
	c.missing.Remove(key)
	c.add(c.entries, key, e)
}

func (c *Cache[V]) add(to *lru.Cache[string, entry[V]], key string, e entry[V]) {
	if to.Add(key, e) {
		c.evicted.Add(1)
	}
}

func (c *Cache[V]) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
	c.missing.Remove(key)
}

// warn logs at most once a minute that the store is down. The caller holds mu.
func (c *Cache[V]) warn(now time.Time, err error) {
	if now.Sub(c.warned) < time.Minute {
		return
	}
	c.warned = now
	c.cfg.Log.Warn("a store is down; what was read from it before still serves", "cache", c.cfg.Name, "served", c.stale.Load(), "error", err)
}
