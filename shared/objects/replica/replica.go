// Package replica serves reads of an object store from memory. One read of the store's revision validates everything
// that a process has read: if the revision is unchanged, so are the objects. Otherwise the store's log has the changes.
//
//   - Every result includes all writes that were completed at [Replica.AsOf].
//   - If the validation fails, the read fails. Package cache serves stale values during an outage.
//   - The memory has at most maxObjects objects and maxLists lists. The least recently used objects are forgotten.
package replica

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/clusterpass/clusterpass/shared/objects"
)

const (
	maxObjects = 4096
	maxValue   = 16 << 10 // larger objects are read from the store each time
	maxLists   = 8
	// timeout is the deadline of one validation. AsOf replaces a validation that lasts longer, because its process was
	// probably frozen.
	timeout = 5 * time.Second
	// settled is the time after a write for which reads are not remembered. Until the write has ended, a read may return
	// the new revision and the old object.
	settled = 5 * time.Second
	// maxChanges is the maximum number of writes that one validation applies. After more, the Replica forgets everything.
	maxChanges = 1000
)

// Store is the part of objects.Store that a Replica reads.
type Store interface {
	objects.Getter
	objects.Lister
	objects.Log
}

// Config configures a Replica.
type Config struct {
	Store  Store
	MaxAge time.Duration    // how long one read of the revision validates the memory
	Now    func() time.Time // nil means time.Now
}

// Replica is a memory of a Store. It is safe for concurrent use.
type Replica struct {
	cfg Config

	mu       sync.Mutex
	revision uint64
	since    time.Time // when revision was first read
	purged   int       // number of times that everything was forgotten
	asOf     time.Time // wall-clock time; the memory includes all writes that were completed by then
	objects  *lru.Cache[string, record]
	lists    map[string]objects.Page // by prefix; whole lists
	flight   *flight                 // the newest validation, or nil
}

// record is an object, or the ErrNotFound of a missing one.
type record struct {
	object objects.Object
	err    error
}

// flight is one validation.
type flight struct {
	began time.Time
	done  chan struct{}
	err   error // error of the store; set before done is closed
}

// New returns an empty Replica. It sends no requests.
func New(cfg Config) *Replica {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	known, err := lru.New[string, record](maxObjects)
	if err != nil {
		panic(err) // maxObjects is not positive
	}
	return &Replica{cfg: cfg, objects: known, lists: map[string]objects.Page{}}
}

// AsOf validates the memory if the last validation is older than MaxAge, or older than the call if fresh is true. The
// memory includes all writes that were completed at the returned time. With fresh, that is the time of the call or
// later. AsOf implements cache.Source.
func (r *Replica) AsOf(ctx context.Context, fresh bool) (time.Time, error) {
	now := r.now()
	notBefore := now
	if !fresh {
		notBefore = now.Add(-r.cfg.MaxAge)
	}
	r.mu.Lock()
	if asOf := r.asOf; !asOf.Before(notBefore) && !asOf.After(now) { // a later time means that the clock was set back
		r.mu.Unlock()
		return asOf, nil
	}
	f := r.flight
	if f == nil || f.began.Before(notBefore) || f.began.After(now) || now.Sub(f.began) > timeout {
		f = r.start(ctx, now)
	}
	r.mu.Unlock()
	select {
	case <-f.done:
		return f.began, f.err
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// start starts a validation. r.mu must be locked.
func (r *Replica) start(ctx context.Context, now time.Time) *flight {
	f := &flight{began: now, done: make(chan struct{})}
	r.flight = f
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	go func() {
		defer cancel()
		defer close(f.done)
		f.err = r.validate(ctx, f)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.flight == f {
			r.flight = nil
		}
	}()
	return f
}

func (r *Replica) validate(ctx context.Context, f *flight) error {
	r.mu.Lock()
	base, isEmpty := r.revision, r.objects.Len()+len(r.lists) == 0
	r.mu.Unlock()
	to, err := r.cfg.Store.Revision(ctx)
	if err != nil {
		return err
	}
	var changes []objects.Event
	isLost := to < base || to-base > maxChanges // the store was replaced or restored, or reading again costs less
	isLost = isLost || isEmpty && to > base
	if to > base && !isLost {
		changes, err = objects.Changes(ctx, r.cfg.Store, base, to)
		if isLost = errors.Is(err, objects.ErrCompacted); err != nil && !isLost {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	isNewest := !f.began.Before(r.asOf) || r.asOf.After(r.now())
	if isLost {
		r.objects.Purge()
		clear(r.lists)
		r.purged++
	}
	if isNewest && (isLost || to != r.revision || r.since.After(r.now())) {
		r.since = f.began
	}
	if isLost && isNewest {
		r.revision = to
	}
	for _, e := range changes {
		if e.Object.Revision > r.revision { // another validation may have applied it
			r.apply(e)
		}
	}
	if isNewest {
		r.revision, r.asOf = max(r.revision, to), f.began
	}
	return nil
}

// state identifies the memory at the beginning of a read of the store.
type state struct {
	revision  uint64
	purged    int
	isSettled bool
}

// state returns the current state. r.mu must be locked.
func (r *Replica) state() state {
	return state{r.revision, r.purged, r.now().Sub(r.since) >= settled}
}

// mayRemember reports whether the memory was settled when a read began, and is unchanged since. r.mu must be locked.
func (r *Replica) mayRemember(before state) bool { return before.isSettled && before == r.state() }

// apply updates the memory by one event. r.mu must be locked.
func (r *Replica) apply(e objects.Event) {
	key := e.Object.Key
	maps.DeleteFunc(r.lists, func(prefix string, _ objects.Page) bool { return strings.HasPrefix(key, prefix) })
	if old, ok := r.objects.Peek(key); !ok || old.object.Revision >= e.Object.Revision {
		return
	}
	if e.Type == objects.Deleted || len(e.Object.Value) > maxValue {
		r.objects.Remove(key)
		return
	}
	r.objects.Add(key, record{object: e.Object})
}

// Get implements objects.Getter.
func (r *Replica) Get(ctx context.Context, key string) (objects.Object, error) {
	if _, err := r.AsOf(ctx, false); err != nil {
		return objects.Object{}, err
	}
	r.mu.Lock()
	before := r.state()
	known, ok := r.objects.Get(key)
	r.mu.Unlock()
	if ok {
		return known.object, known.err
	}
	o, err := r.cfg.Store.Get(ctx, key)
	isMissing := errors.Is(err, objects.ErrNotFound)
	if err != nil && !isMissing || len(o.Value) > maxValue {
		return o, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mayRemember(before) {
		r.objects.Add(key, record{o, err})
	}
	return o, err
}

// List implements objects.Lister. It only remembers whole lists.
func (r *Replica) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	if limit != 0 || cont != "" {
		return r.cfg.Store.List(ctx, prefix, limit, cont)
	}
	if _, err := r.AsOf(ctx, false); err != nil {
		return objects.Page{}, err
	}
	r.mu.Lock()
	before := r.state()
	known, ok := r.lists[prefix]
	r.mu.Unlock()
	if ok {
		return known, nil
	}
	page, err := r.cfg.Store.List(ctx, prefix, 0, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.mayRemember(before) && len(r.lists) < maxLists {
		r.lists[prefix] = page
	}
	return page, err
}

// Revision validates the memory and returns the store's revision, which is never older than the call.
func (r *Replica) Revision(ctx context.Context) (uint64, error) {
	if _, err := r.AsOf(ctx, true); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision, nil
}

// Watch implements objects.Log. It calls the store's Watch.
func (r *Replica) Watch(ctx context.Context, prefix string, from uint64, each func(objects.Event) error,
	progress func(rev uint64)) error {
	return r.cfg.Store.Watch(ctx, prefix, from, each, progress)
}

func (r *Replica) now() time.Time { return r.cfg.Now().Round(0) }
