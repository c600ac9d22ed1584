// Package cache keeps values in the memory of one process. A [Cache] reads them from a store. An [Expiring] contains
// values that its user adds.
//
//   - Concurrent callers of one key share one fetch.
//   - The number of entries is bounded. They expire after a TTL with jitter, so that processes do not refetch at once.
//   - While the store is down, expired entries are served for a bounded time. A missing key is never served stale.
//   - All times are wall-clock times, because the monotonic clock stops while a function is frozen.
package cache

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
)

// Config configures a Cache. A duration of 0 disables its feature.
type Config struct {
	Name     string        // for the log: "secrets"
	Max      int           // entries; at least 1
	TTL      time.Duration // how long an entry is fresh, shortened by up to a tenth
	Negative time.Duration // how long a key is not fetched again after the store reported it missing, or refused
	// Stale is how long after its read an entry may be served while the store is down.
	Stale time.Duration
	// Patience limits how long Get waits for a fetch if a stale entry can be served. 0 means no limit.
	Patience time.Duration
	// Retry is the minimum time between two fetches of a stale key, and between two fetches by Refresh or Renew.
	Retry time.Duration
	// Hung is how long a hanging store is remembered for a key without a usable entry. A store hangs if a fetch fails by
	// a timeout, not if it refuses slowly. Get then fails at once for Retry, and afterwards waits at most Patience.
	Hung    time.Duration
	Timeout time.Duration // of one fetch, whatever the caller's deadline
	// Source dates the values of fetch. Without it, they are of the start of the fetch.
	Source Source
	// Missing: the key does not exist. Down: the store is unavailable. After other errors nothing stale is served.
	Missing, Down func(error) bool
	Now           func() time.Time // nil means time.Now
	Log           *slog.Logger     // nil means slog.Default()
}

// Source is a memory in front of the store, from which fetch reads.
type Source interface {
	// AsOf returns a time whose state the next fetches return, or a later one. With fresh it is not before the call.
	AsOf(ctx context.Context, fresh bool) (time.Time, error)
}

// SourceOf returns the store as a Source if it is one, and otherwise nil.
func SourceOf(store any) Source {
	source, _ := store.(Source)
	return source
}

// Stats are counters since the start of the process, and the current size.
type Stats struct {
	Hits      uint64 // answers from a fresh entry, including errors
	Fetches   uint64 // calls of the store
	StaleHits uint64 // answers from an expired entry while the store was down
	Errors    uint64 // failed fetches; a missing key is not a failure
	Evicted   uint64 // entries removed because the cache was full
	Size      int    // current entries, including errors
}

// Cache caches values of V by key. It is safe for concurrent use and has no goroutine of its own.
type Cache[V any] struct {
	cfg     Config
	fetch   func(ctx context.Context, key string) (V, error)
	flights singleflight.Group

	mu       sync.Mutex
	flying   map[string]time.Time // flights and the wall-clock time of their start
	entries  *lru.Cache[string, entry[V]]
	negative *lru.Cache[string, entry[V]] // errors; separate, so that names that do not exist cannot evict values
	warned   time.Time

	hits, fetches, stale, errors, evicted atomic.Uint64
}

type entry[V any] struct {
	value   V
	err     error
	read    time.Time // start of the fetch, or the time of the Source
	renewed time.Time // start of the last fetch by Refresh or Renew
	expires time.Time
	stale   bool // served after its expiry
	hung    bool // err means that the store hung, not that the key is missing
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
	negative, err := lru.New[string, entry[V]](cfg.Max)
	if err != nil {
		panic(err)
	}
	return &Cache[V]{cfg: cfg, fetch: fetch, entries: entries, negative: negative, flying: map[string]time.Time{}}
}

func (c *Cache[V]) now() time.Time { return c.cfg.Now().Round(0) }

// Get returns the value of key, from the cache or from the store.
func (c *Cache[V]) Get(ctx context.Context, key string) (V, error) {
	e, ok := c.lookup(key)
	if ok && c.isFresh(e) {
		return c.answerFrom(e)
	}
	return c.ask(ctx, key, e, ok, false)
}

// CanServe reports whether Get would answer from an entry if the store were down.
func (c *Cache[V]) CanServe(key string) bool {
	e, ok := c.lookup(key)
	return ok && (c.isFresh(e) || c.mayServeStale(e))
}

// Refresh is Get, but fetches key even if its entry is fresh, unless it was renewed less than Retry ago.
func (c *Cache[V]) Refresh(ctx context.Context, key string) (V, error) {
	e, ok := c.lookup(key)
	if ok && c.renewedJustNow(e) {
		return c.answerFrom(e)
	}
	return c.ask(ctx, key, e, ok, true)
}

// Renew fetches key if outdated returns true for the cached value, unless it was renewed less than Retry ago. It waits
// until the fetch ends, since the cached value does not work.
func (c *Cache[V]) Renew(ctx context.Context, key string, outdated func(V) bool) (V, error) {
	e, ok := c.lookup(key)
	if ok && (c.renewedJustNow(e) || e.err == nil && !outdated(e.value)) {
		return c.answerFrom(e)
	}
	return c.wait(ctx, c.start(ctx, key, true), nil)
}

func (c *Cache[V]) renewedJustNow(e entry[V]) bool {
	if e.err != nil {
		return c.isFresh(e)
	}
	since := c.now().Sub(e.renewed)
	return since >= 0 && since < c.cfg.Retry
}

// ask starts or joins a fetch. ok reports whether e exists.
func (c *Cache[V]) ask(ctx context.Context, key string, e entry[V], ok, fresh bool) (V, error) {
	asked, flight := c.now(), c.start(ctx, key, fresh)
	if c.cfg.Patience > 0 && ok && c.mayServeStale(e) {
		patience := time.NewTimer(c.cfg.Patience)
		defer patience.Stop()
		v, err := c.wait(ctx, flight, patience.C)
		if !errors.Is(err, errNoAnswerYet) {
			return v, err
		}
		var renewed time.Time
		if fresh {
			renewed = asked
		}
		if e, ok = c.extendStale(key, renewed, err); ok {
			return c.answerFrom(e)
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
		Evicted: c.evicted.Load(), Size: c.entries.Len() + c.negative.Len(),
	}
}

func (c *Cache[V]) lookup(key string) (entry[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.negative.Get(key); ok {
		return e, true
	}
	return c.entries.Get(key)
}

func (c *Cache[V]) answerFrom(e entry[V]) (V, error) {
	if e.stale {
		c.stale.Add(1)
	} else {
		c.hits.Add(1)
	}
	return e.value, e.err
}

// start joins a fetch of key or starts one, which continues without its first caller. A fresh fetch never joins an
// ordinary one, which may predate a change. A fetch older than Timeout was frozen and may never end.
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
		defer c.endFlight(name, c.beginFlight(name))
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
		defer cancel()
		if e, ok := c.lookup(key); ok && !fresh && c.isFresh(e) {
			return e, e.err // another fetch ended since the caller's lookup
		}
		e, err := c.read(ctx, key, fresh)
		return e, err
	})
}

func (c *Cache[V]) beginFlight(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.flying[name] = now
	return now
}

func (c *Cache[V]) endFlight(name string, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying[name].Equal(began) {
		delete(c.flying, name)
	}
}

var errNoAnswerYet = errors.New("no answer yet")

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
		return zero, errNoAnswerYet
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

func (c *Cache[V]) read(ctx context.Context, key string, fresh bool) (entry[V], error) {
	c.fetches.Add(1)
	e := entry[V]{read: c.now()}
	if fresh {
		e.renewed = e.read
	}
	asOf, v, err := c.fetchAsOf(ctx, key, fresh)
	if err == nil || c.cfg.Missing(err) {
		e.read = asOf
	}
	switch {
	case err == nil:
		ttl := c.cfg.TTL - time.Duration(rand.Int64N(int64(c.cfg.TTL)/10+1)) //nolint:gosec // jitter
		e.value, e.expires = v, e.read.Add(ttl)
		c.put(key, e)
		return e, nil
	case c.cfg.Missing(err):
		e.err, e.expires = err, e.read.Add(c.cfg.Negative)
		c.put(key, e)
		return e, err
	}
	c.errors.Add(1)
	if !c.cfg.Down(err) { // the store refused: never serve a stale value
		e.err, e.expires = err, e.read.Add(c.cfg.Negative)
		c.put(key, e)
		return entry[V]{}, err
	}
	if old, ok := c.extendStale(key, e.renewed, err); ok {
		return old, nil
	}
	if c.cfg.Hung > 0 && isTimeout(err) {
		e.err, e.hung, e.expires = err, true, c.now().Add(c.cfg.Retry)
		c.put(key, e)
	}
	return entry[V]{}, err
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func (c *Cache[V]) fetchAsOf(ctx context.Context, key string, fresh bool) (asOf time.Time, v V, err error) {
	asOf = c.now()
	if c.cfg.Source != nil {
		if asOf, err = c.cfg.Source.AsOf(ctx, fresh); err != nil {
			return asOf, v, err
		}
	}
	v, err = c.fetch(ctx, key)
	return asOf, v, err
}

// isFresh is false for an entry of the future: the clock was set back, so the age of the entry is not known.
func (c *Cache[V]) isFresh(e entry[V]) bool {
	now := c.now()
	return now.Before(e.expires) && !now.Before(e.read)
}

func (c *Cache[V]) mayServeStale(e entry[V]) bool {
	if c.now().Before(e.read) {
		return false
	}
	if e.hung {
		return c.now().Sub(e.read) <= c.cfg.Timeout+c.cfg.Hung
	}
	return e.err == nil && c.now().Sub(e.read) <= c.cfg.Stale
}

// extendStale prolongs the entry of key by at most Retry, if it may be served stale. renewed is the start of a fetch by
// Refresh or Renew.
func (c *Cache[V]) extendStale(key string, renewed time.Time, why error) (entry[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries.Get(key)
	if m, gone := c.negative.Get(key); gone && m.hung && errors.Is(why, errNoAnswerYet) {
		m.expires = c.now().Add(c.cfg.Retry)
		c.negative.Add(key, m)
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

// put caches e unless a newer result is cached. Fetches may end in another order than they began.
func (c *Cache[V]) put(key string, e entry[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range []*lru.Cache[string, entry[V]]{c.entries, c.negative} {
		if old, ok := known.Peek(key); ok && old.read.After(e.read) && !old.read.After(c.now()) {
			return
		}
	}
	if e.err != nil {
		c.entries.Remove(key)
		c.add(c.negative, key, e)
		return
	}
	c.negative.Remove(key)
	c.add(c.entries, key, e)
}

func (c *Cache[V]) add(to *lru.Cache[string, entry[V]], key string, e entry[V]) {
	if to.Add(key, e) {
		c.evicted.Add(1)
	}
}

// warn logs that the store is down, at most once a minute. c.mu must be locked.
func (c *Cache[V]) warn(now time.Time, err error) {
	if now.Sub(c.warned) < time.Minute {
		return
	}
	c.warned = now
	c.cfg.Log.Warn("the store is down; cached values are served", "cache", c.cfg.Name, "served",
		c.stale.Load(), "error", err)
}
