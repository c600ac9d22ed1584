// Package replica serves reads of an object store from memory. A validation of the memory calls Store.Changes and
// applies the changes. If there are too many changes, or the store's log lacks them, the validation clears the memory.
// If the memory has no revision yet, the validation calls Store.Revision instead.
//
//   - A result includes every write that was completed at least [Config.MaxAge] before the call.
//   - [Replica.AsOf] returns a time. Results of calls after AsOf include every write that was completed before that
//     time.
//   - The revision of a list is at least the revision that the last validation before the list has found.
//   - If the validation fails, the read fails. Package cache serves stale values during an outage.
//   - The memory contains at most maxObjects objects and, in addition, at most maxLists lists of any size.
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
	maxValue   = 16 << 10 // maximum size in bytes of a cached object
	maxLists   = 8
	// timeout is the deadline of one validation. If a validation lasts longer, AsOf starts another, because AWS Lambda has
	// probably frozen the process meanwhile.
	timeout = 5 * time.Second
	// settleTime is how long the Replica adds no results of reads to the memory after a validation has found a new
	// revision. While the write with that revision is still in progress, a read of the store may return the old object.
	// Entries that are in the memory already are still used.
	settleTime = 5 * time.Second
	// maxChanges is the maximum number of writes that one validation applies. If there are more, the validation clears the
	// memory.
	maxChanges = 1000
)

// Store is the part of objects.Store that does not write.
type Store interface {
	objects.Getter
	objects.Lister
	objects.Log
}

// Config configures a Replica.
type Config struct {
	Store  Store
	MaxAge time.Duration    // how long a validation is valid
	Now    func() time.Time // nil means time.Now
}

// Replica caches the results of a Store's Get and List in memory. It is safe for concurrent use.
type Replica struct {
	cfg Config

	mu         sync.Mutex
	revision   uint64
	since      time.Time // start of the validation that first read this revision
	purgeCount int       // how often the memory was cleared
	asOf       time.Time // the memory includes all writes that were completed at this wall-clock time
	objects    *lru.Cache[string, record]
	lists      map[string]objects.Page // lists without a limit, by prefix
	running    *validation             // the newest validation while it runs, or nil
}

// record is an object, or the ErrNotFound of a missing one.
type record struct {
	object objects.Object
	err    error
}

// validation is a running or completed validation of the memory.
type validation struct {
	began time.Time
	done  chan struct{}
	err   error // error of the store, set before done is closed
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

// AsOf validates the memory, unless fresh is false and a successful validation began within the last MaxAge. The memory
// includes all writes that were completed at the returned time. If fresh is true, that time is not before the call.
// AsOf implements cache.Source.
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
	f := r.running
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

// start starts a validation, which continues after ctx ends. r.mu must be locked.
func (r *Replica) start(ctx context.Context, now time.Time) *validation {
	f := &validation{began: now, done: make(chan struct{})}
	r.running = f
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	go func() {
		defer cancel()
		defer close(f.done)
		f.err = r.validate(ctx, f)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.running == f {
			r.running = nil
		}
	}()
	return f
}

func (r *Replica) validate(ctx context.Context, f *validation) error {
	r.mu.Lock()
	base, limit := r.revision, maxChanges
	if r.objects.Len()+len(r.lists) == 0 {
		limit = 0 // there is nothing to apply changes to
	}
	r.mu.Unlock()
	changes, to, err := r.changes(ctx, base, limit)
	mustClear := errors.Is(err, objects.ErrCompacted) // also if the store was replaced or restored
	if mustClear {
		to, err = r.cfg.Store.Revision(ctx)
		mustClear = base != 0 || to != 0 // the store may still be empty
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	isNewest := !f.began.Before(r.asOf) || r.asOf.After(r.now())
	if mustClear {
		r.objects.Purge()
		clear(r.lists)
		r.purgeCount++
	}
	if isNewest && (mustClear || to != r.revision || r.since.After(r.now())) {
		r.since = f.began
	}
	if mustClear && isNewest {
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

func (r *Replica) changes(ctx context.Context, base uint64, limit int) ([]objects.Event, uint64, error) {
	if base == 0 { // no revision is known
		return nil, 0, objects.ErrCompacted
	}
	return r.cfg.Store.Changes(ctx, base, limit)
}

// state identifies the revision of the store that the memory reflects. It changes with every write that a validation
// finds, when the memory is cleared, and when settleTime has passed.
type state struct {
	revision   uint64
	purgeCount int
	isSettled  bool
}

// r.mu must be locked.
func (r *Replica) state() state {
	return state{r.revision, r.purgeCount, r.now().Sub(r.since) >= settleTime}
}

// mayCache reports whether the result of a read may be cached. atStart is the state when the read began. r.mu must be
// locked.
func (r *Replica) mayCache(atStart state) bool { return atStart.isSettled && atStart == r.state() }

// apply applies e to the memory. r.mu must be locked.
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
	if r.mayCache(before) {
		r.objects.Add(key, record{o, err})
	}
	return o, err
}

// List implements objects.Lister. It caches only lists without a limit.
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
		// All changes up to before.revision have been applied. A change of a key with this prefix would have removed the list
		// from the memory. The list is therefore the same at that revision.
		known.Revision = max(known.Revision, before.revision)
		return known, nil
	}
	page, err := r.cfg.Store.List(ctx, prefix, 0, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.mayCache(before) && len(r.lists) < maxLists {
		r.lists[prefix] = page
	}
	return page, err
}

// Revision validates the memory. It returns a revision that is at least that of every write that was completed before
// the call.
func (r *Replica) Revision(ctx context.Context) (uint64, error) {
	if _, err := r.AsOf(ctx, true); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision, nil
}

// Changes implements objects.Log. It validates the memory, and then reads the store's log unless the validated
// revision is fromRev.
func (r *Replica) Changes(ctx context.Context, fromRev uint64, limit int) ([]objects.Event, uint64, error) {
	if _, err := r.AsOf(ctx, true); err != nil {
		return nil, 0, err
	}
	r.mu.Lock()
	rev := r.revision
	r.mu.Unlock()
	if rev == fromRev {
		return nil, fromRev, nil
	}
	return r.cfg.Store.Changes(ctx, fromRev, limit)
}

// Watch implements objects.Log, without the memory.
func (r *Replica) Watch(ctx context.Context, prefix string, fromRev uint64, onEvent func(objects.Event) error,
	onProgress func(rev uint64)) error {
	return r.cfg.Store.Watch(ctx, prefix, fromRev, onEvent, onProgress)
}

func (r *Replica) now() time.Time { return r.cfg.Now().Round(0) }
