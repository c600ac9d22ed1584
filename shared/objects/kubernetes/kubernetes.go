// Package kubernetes stores objects in a hub cluster, as custom resources of the kind Record. The resourceVersion of a
// Record is its revision, so the revision is that of the hub's etcd. It also grows by writes of others.
//
// Invariants:
//   - After each write, the writer changes one more Record, the announcement. A write is complete only then. So one
//     read of the announcement shows that nothing was written, and its watch event follows those of all complete
//     writes.
//   - A write that may have been made is announced, too. A writer may die before it announces its write. So each
//     process that reads announces again if none was made for 30 s.
//   - A Record contains the previous value, for watches, and the revision of its creation. A deletion's event has no
//     revision of the creation if the object was never updated.
//   - Names of Records have the order of their keys, so that the API server's pages have it. Keys of more than 158
//     bytes with equal first 120 bytes have any order.
package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// Config configures a Store.
type Config struct {
	// Client sends the requests. Its namespace is that of the Records.
	Client *hub.Client
	// AnnounceEvery is how long a reader waits for an announcement before it makes one. 0 means 30 s.
	AnnounceEvery time.Duration
}

// Store implements objects.Store. It starts no goroutine that outlives a call, and needs no Close.
type Store struct {
	client *hub.Client
	every  time.Duration
	poll   poller
}

var _ objects.Store = (*Store)(nil)

// New returns a Store. It sends no request.
func New(cfg Config) *Store {
	return &Store{
		client: cfg.Client, every: cmp.Or(cfg.AnnounceEvery, 30*time.Second), poll: poller{gate: make(chan struct{}, 1)},
	}
}

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key string) (objects.Object, error) {
	if err := objects.ValidKey(key); err != nil {
		return objects.Object{}, err
	}
	_, o, err := s.read(ctx, key)
	if err != nil {
		return objects.Object{}, s.fail("get", key, err)
	}
	return o, nil
}

func (s *Store) read(ctx context.Context, key string) (record, objects.Object, error) {
	var r record
	err := s.client.Do(ctx, hub.Request{Method: http.MethodGet, Path: s.path(recordName(key))}, &r)
	if err != nil {
		return r, objects.Object{}, err
	}
	if r.Key != key {
		return r, objects.Object{}, fmt.Errorf("%w: the Record %s has another key", objects.ErrInvalid, r.Metadata.Name)
	}
	o, err := r.object()
	return r, o, err
}

// Create implements objects.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte) (objects.Object, error) {
	return s.write(ctx, "create", key, value, func(ctx context.Context) (objects.Object, error) {
		return s.send(ctx, hub.Request{Method: http.MethodPost, Path: s.path(), Body: newRecord(key, value, 0)})
	})
}

// Update implements objects.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	return s.write(ctx, "update", key, value, func(ctx context.Context) (objects.Object, error) {
		before, o, err := s.readAt(ctx, key, rev)
		if err != nil {
			return o, err
		}
		r := newRecord(key, value, rev)
		r.Previous, r.Created = before.Value, o.Created
		return s.send(ctx, hub.Request{Method: http.MethodPut, Path: s.path(r.Metadata.Name), Body: r})
	})
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key string, rev uint64) (objects.Object, error) {
	var deleted objects.Object
	announced, err := s.write(ctx, "delete", key, nil, func(ctx context.Context) (objects.Object, error) {
		before, o, err := s.readAt(ctx, key, rev)
		if err != nil {
			return o, err
		}
		deleted = o
		path := s.path(before.Metadata.Name)
		err = s.client.Do(ctx, hub.DeleteRequest(path, before.Metadata.UID, before.Metadata.ResourceVersion), nil)
		return o, withOutcome(err)
	})
	if err != nil {
		return objects.Object{}, err
	}
	// The API server does not return the revision of the deletion.
	deleted.Revision = announced.Revision
	return deleted, nil
}

// send sends a Record and returns the object that the API server stored.
func (s *Store) send(ctx context.Context, r hub.Request) (objects.Object, error) {
	var out record
	if err := s.client.Do(ctx, r, &out); err != nil {
		return objects.Object{}, withOutcome(err)
	}
	return out.object()
}

// unknownOutcomeError is the error of a write that may have been made.
type unknownOutcomeError struct{ error }

func (e *unknownOutcomeError) Unwrap() error { return e.error }

func withOutcome(err error) error {
	if err != nil && hub.FaultOf(err) == hub.Unavailable {
		return &unknownOutcomeError{err}
	}
	return err
}

func (s *Store) readAt(ctx context.Context, key string, rev uint64) (record, objects.Object, error) {
	r, o, err := s.read(ctx, key)
	if err == nil && o.Revision != rev {
		err = fmt.Errorf("%w: want revision %d, is %d", objects.ErrConflict, rev, o.Revision)
	}
	return r, o, err
}

// announceTimeout is what a read and a write leave of hub.CallTimeout for the announcement.
const announceTimeout = 2 * time.Second

// write makes a write and announces it. For a deletion, the result has the revision of the announcement.
func (s *Store) write(ctx context.Context, op, key string, value []byte,
	do func(context.Context) (objects.Object, error)) (objects.Object, error) {
	if err := errors.Join(objects.ValidKey(key), objects.ValidValue(value)); err != nil {
		return objects.Object{}, err
	}
	if err := ctx.Err(); err != nil {
		return objects.Object{}, s.fail(op, key, err)
	}
	end := time.Now().Add(hub.CallTimeout)
	writing, cancel := context.WithDeadline(ctx, end.Add(-announceTimeout))
	o, err := do(writing)
	cancel()
	var unknown *unknownOutcomeError
	if err != nil && !errors.As(err, &unknown) {
		return objects.Object{}, s.fail(op, key, err)
	}
	if ctx.Err() != nil { // the caller is gone, but others must learn of the write
		end = time.Now().Add(announceTimeout)
	}
	announcing, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	announced, failure := s.announce(announcing)
	if err != nil {
		return objects.Object{}, s.fail(op, key, err)
	}
	if failure != nil {
		return objects.Object{}, s.fail(op, key, fmt.Errorf("announce the write: %w", asUnavailable(failure)))
	}
	if op == "delete" {
		o.Revision = announced
	}
	return o, nil
}

// asUnavailable keeps the caller from believing that nothing was written.
func asUnavailable(err error) error {
	return objects.Unavailable(err, max(time.Second, hub.RetryAfter(err)))
}

// announce changes the announcement, and returns its new revision. ctx has a deadline.
func (s *Store) announce(ctx context.Context) (uint64, error) {
	defer s.poll.expire()
	for n := 1; ; n++ {
		r := record{APIVersion: apiVersion, Kind: Kind, Write: rand.Text()}
		r.Metadata.Name = announcement
		var out record
		err := s.client.Do(ctx, hub.Request{
			Method: http.MethodPatch, Path: s.path(announcement), ContentType: "application/merge-patch+json",
			Body: map[string]string{"write": r.Write}, IsIdempotent: true,
		}, &out)
		if err != nil && hub.FaultOf(err) == hub.NotFound {
			err = s.client.Do(ctx, hub.Request{Method: http.MethodPost, Path: s.path(), Body: r}, &out)
		}
		if err == nil {
			return parseRevision(out.Metadata.ResourceVersion)
		}
		// Others announce at the same time.
		if fault := hub.FaultOf(err); fault != hub.Conflict && fault != hub.Exists || hub.Sleep(ctx, hub.Pause(n)) != nil {
			return 0, err
		}
	}
}

// state is what one read of the announcement shows.
type state struct {
	announced uint64 // the last announcement, or 0
	current   uint64 // the revision of the hub
}

// readAnnouncement reads the announcement. If it has not changed for s.every, readAnnouncement announces again.
func (s *Store) readAnnouncement(ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, hub.CallTimeout)
	defer cancel()
	var list recordList
	err := s.client.Do(ctx, hub.Request{
		Method: http.MethodGet, Path: s.path(),
		Query: url.Values{"fieldSelector": {"metadata.name=" + announcement}},
	}, &list)
	if err != nil {
		return state{}, err
	}
	var st state
	if st.current, err = parseRevision(list.Metadata.ResourceVersion); err != nil {
		return state{}, err
	}
	for _, r := range list.Items {
		if st.announced, err = parseRevision(r.Metadata.ResourceVersion); err != nil {
			return state{}, err
		}
	}
	if s.poll.silence(st.announced, time.Now()) >= s.every {
		if announced, err := s.announce(ctx); err == nil { // a hub without space for writes can still be read
			st = state{announced, max(st.current, announced)}
		}
	}
	return st, nil
}

// Revision implements objects.Store.
func (s *Store) Revision(ctx context.Context) (uint64, error) {
	now, err := s.readAnnouncement(ctx)
	if err != nil {
		return 0, s.fail("read", "the revision", err)
	}
	return now.current, nil
}

// poller shares reads of the announcement.
type poller struct {
	gate chan struct{} // admits one reader at a time

	mu        sync.Mutex
	last      state
	at        time.Time // start of the read; zero if last must not be used
	announced uint64    // the newest announcement that this process knows
	since     time.Time // when the process first saw it
	failure   error     // why the last failed read failed
	failed    time.Time // when it ended
}

func (p *poller) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = time.Time{}
}

// silence returns how long the process has known announced as the newest announcement.
func (p *poller) silence(announced uint64, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if announced != p.announced || p.since.IsZero() {
		p.announced, p.since = announced, now
	}
	return now.Sub(p.since)
}

// recentAnnouncement returns a state that was read at most age ago. Callers who wait for a read share its failure,
// since the next one would probably fail as late.
func (s *Store) recentAnnouncement(ctx context.Context, age time.Duration) (state, error) {
	called := time.Now()
	select {
	case s.poll.gate <- struct{}{}:
		defer func() { <-s.poll.gate }()
	case <-ctx.Done():
		return state{}, ctx.Err()
	}
	start := time.Now()
	s.poll.mu.Lock()
	last, at, failure, failed := s.poll.last, s.poll.at, s.poll.failure, s.poll.failed
	s.poll.mu.Unlock()
	if !at.IsZero() && start.Sub(at) <= age {
		return last, nil
	}
	if failure != nil && failed.After(called) {
		return state{}, failure
	}
	now, err := s.readAnnouncement(ctx)
	s.poll.mu.Lock()
	defer s.poll.mu.Unlock()
	switch {
	case err == nil:
		s.poll.last, s.poll.at = now, start
	case ctx.Err() == nil: // not that of one caller
		s.poll.failure, s.poll.failed = err, time.Now()
	}
	return now, err
}

func (s *Store) path(name ...string) string { return s.client.Path(basePath, Resource, name...) }

func resourceOf(key string) string {
	resource, _, _ := strings.Cut(key, "/")
	return resource
}

var storeErrors = hub.StoreErrors{
	Reasons: map[hub.Fault]error{
		hub.NotFound: objects.ErrNotFound, hub.Exists: objects.ErrExists, hub.Conflict: objects.ErrConflict,
		hub.Expired: objects.ErrCompacted, hub.Forbidden: objects.ErrForbidden, hub.Refused: objects.ErrInvalid,
	},
	Unavailable: objects.Unavailable, Known: []error{objects.ErrUnavailable}, Lack: " or no " + Resource + "." + Group,
}

func (s *Store) fail(op, key string, err error) error {
	return s.client.Explain(op, key, err, storeErrors)
}
