package replica_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/objects/replica"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const maxAge = 2 * time.Second

// countedStore counts the calls that reach the store, and fails with err if it is not nil.
type countedStore struct {
	objects.Store
	gets, lists, revisions, watches atomic.Int64
	err                             atomic.Pointer[error]
	history                         func() error // of Watch; nil for the store's own
	beforeGetReturns                func()
}

func (s *countedStore) fail() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *countedStore) Get(ctx context.Context, key string) (objects.Object, error) {
	s.gets.Add(1)
	if err := s.fail(); err != nil {
		return objects.Object{}, err
	}
	o, err := s.Store.Get(ctx, key)
	if s.beforeGetReturns != nil {
		s.beforeGetReturns()
	}
	return o, err
}

func (s *countedStore) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	s.lists.Add(1)
	return s.Store.List(ctx, prefix, limit, cont)
}

func (s *countedStore) Revision(ctx context.Context) (uint64, error) {
	s.revisions.Add(1)
	if err := s.fail(); err != nil {
		return 0, err
	}
	return s.Store.Revision(ctx)
}

func (s *countedStore) Watch(ctx context.Context, prefix string, from uint64, each func(objects.Event) error,
	progress func(uint64)) error {
	s.watches.Add(1)
	if s.history != nil {
		return s.history()
	}
	return s.Store.Watch(ctx, prefix, from, each, progress)
}

func (s *countedStore) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	return objects.ChangesOf(ctx, s, from, limit)
}

// setup is a replica of a store in a directory.
type setup struct {
	*replica.Replica
	t     *testing.T
	store *countedStore
	clock *testingclock.FakeClock
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	st, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	s := &setup{t: t, store: &countedStore{Store: st}, clock: testingclock.NewFakeClock(time.Now())}
	s.Replica = replica.New(replica.Config{Store: s.store, MaxAge: maxAge, Now: s.clock.Now})
	return s
}

// settle waits until reads are remembered.
func (s *setup) settle() {
	s.t.Helper()
	if _, err := s.AsOf(s.t.Context(), true); err != nil {
		s.t.Fatal(err)
	}
	s.clock.Step(time.Minute)
}

func (s *setup) create(key, value string) objects.Object {
	s.t.Helper()
	o, err := s.store.Create(s.t.Context(), key, []byte(value))
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *setup) update(o objects.Object, value string) objects.Object {
	s.t.Helper()
	o, err := s.store.Update(s.t.Context(), o.Key, []byte(value), o.Revision)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *setup) delete(o objects.Object) {
	s.t.Helper()
	if _, err := s.store.Delete(s.t.Context(), o.Key, o.Revision); err != nil {
		s.t.Fatal(err)
	}
}

// want checks the value of a key; "" means that the object is missing.
func (s *setup) want(key, value string) {
	s.t.Helper()
	o, err := s.Get(s.t.Context(), key)
	if value == "" && errors.Is(err, objects.ErrNotFound) {
		return
	}
	if err != nil || string(o.Value) != value {
		s.t.Errorf("%s has %q and %v, want %q", key, o.Value, err, value)
	}
}

func (s *setup) wantCalls(gets, lists, revisions, watches int64) {
	s.t.Helper()
	got := [...]int64{s.store.gets.Load(), s.store.lists.Load(), s.store.revisions.Load(), s.store.watches.Load()}
	if got != [...]int64{gets, lists, revisions, watches} {
		s.t.Errorf("the store got %v gets, lists, revisions and watches, want %d %d %d %d", got, gets, lists, revisions,
			watches)
	}
}

func TestRevisionValidatesEverything(t *testing.T) {
	s := newSetup(t)
	s.create("clusters/a", "1")
	s.create("clusters/b", "1")
	s.settle()
	for range 5 {
		s.want("clusters/a", "1")
		s.want("clusters/b", "1")
		s.want("revocations/none", "")
		if page, err := s.List(t.Context(), "clusters/", 0, ""); err != nil || len(page.Objects) != 2 {
			t.Error(page.Objects, err)
		}
		s.clock.Step(maxAge + time.Millisecond)
	}
	s.wantCalls(3, 1, 6, 0)
}

// A change must be visible after MaxAge, without another read of the objects.
func TestChangesComeFromTheLog(t *testing.T) {
	s := newSetup(t)
	a, b := s.create("clusters/a", "1"), s.create("clusters/b", "1")
	s.settle()
	s.want("clusters/a", "1")
	s.want("clusters/b", "1")
	s.want("clusters/c", "")
	s.update(s.update(a, "2"), "3")
	s.delete(b)
	s.create("clusters/c", "1")
	s.want("clusters/a", "1")
	s.clock.Step(maxAge + time.Millisecond)
	s.want("clusters/a", "3")
	s.want("clusters/c", "1")
	s.wantCalls(3, 0, 3, 1)
	s.want("clusters/b", "")
	s.wantCalls(4, 0, 3, 1) // a deleted object is read again
}

func TestListIsReadAgainAfterAChange(t *testing.T) {
	s := newSetup(t)
	a := s.create("clusters/a", "1")
	list := func(want ...string) {
		t.Helper()
		page, err := s.List(t.Context(), "clusters/", 0, "")
		var got []string
		for _, o := range page.Objects {
			got = append(got, string(o.Value))
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q and %v, want %q", got, err, want)
		}
	}
	s.settle()
	list("1")
	s.create("roles/x", "1")
	s.clock.Step(maxAge + time.Millisecond)
	list("1")
	s.wantCalls(0, 1, 3, 1)
	s.update(a, "2")
	s.clock.Step(maxAge + time.Millisecond)
	list("2")
	s.wantCalls(0, 2, 4, 2)
}

// A watch begins at the revision of a list. The store compacts old revisions, and a watch from one of these fails.
func TestCachedListHasTheRevisionOfItsValidation(t *testing.T) {
	s := newSetup(t)
	s.create("clusters/a", "1")
	s.settle()
	list := func() objects.Page {
		t.Helper()
		page, err := s.List(t.Context(), "clusters/", 0, "")
		if err != nil || len(page.Objects) != 1 {
			t.Fatal(page.Objects, err)
		}
		return page
	}
	list()
	last := s.create("roles/x", "1").Revision
	s.clock.Step(maxAge + time.Millisecond)
	if got := list().Revision; got != last {
		t.Errorf("the list has revision %d, and the store %d", got, last)
	}
	s.wantCalls(0, 1, 3, 1) // the list is still that of the memory
}

func TestFreshReadSeesTheLastWrite(t *testing.T) {
	s := newSetup(t)
	a := s.create("clusters/a", "1")
	s.settle()
	s.want("clusters/a", "1")
	s.clock.Step(time.Millisecond)
	s.update(a, "2")
	if asOf, err := s.AsOf(t.Context(), true); err != nil || asOf.Before(s.clock.Now().Round(0)) {
		t.Error(asOf, err)
	}
	s.want("clusters/a", "2")
}

// Everything must be read again if the log lacks the changes, or if the store was restored from a backup.
func TestUnknownChangesForgetEverything(t *testing.T) {
	for name, change := range map[string]func(s *setup){
		"compacted": func(s *setup) { s.store.history = func() error { return objects.ErrCompacted } },
		"restored": func(s *setup) {
			st, err := dir.Open(s.t.TempDir())
			if err != nil {
				s.t.Fatal(err)
			}
			s.store.Store = st
			s.create("clusters/a", "2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			a := s.create("clusters/a", "1")
			s.create("clusters/b", "1")
			s.settle()
			s.want("clusters/a", "1")
			s.update(a, "2")
			change(s)
			s.clock.Step(maxAge + time.Millisecond)
			s.want("clusters/a", "2")
		})
	}
}

// Package cache decides what is served during an outage, so the memory must not hide it.
func TestOutageIsAnError(t *testing.T) {
	s := newSetup(t)
	s.create("clusters/a", "1")
	s.settle()
	s.want("clusters/a", "1")
	s.store.err.Store(&objects.ErrUnavailable)
	s.clock.Step(maxAge + time.Millisecond)
	if _, err := s.Get(t.Context(), "clusters/a"); !errors.Is(err, objects.ErrUnavailable) {
		t.Error(err)
	}
	s.store.err.Store(nil)
	s.want("clusters/a", "1")
	s.wantCalls(1, 0, 4, 0)
}

// A read that a change overtakes must not be remembered.
func TestOvertakenReadIsForgotten(t *testing.T) {
	s := newSetup(t)
	a := s.create("clusters/a", "1")
	s.settle()
	s.store.beforeGetReturns = func() {
		s.store.beforeGetReturns = nil
		s.update(a, "2")
		s.clock.Step(time.Millisecond)
		if _, err := s.AsOf(t.Context(), true); err != nil {
			t.Error(err)
		}
	}
	s.want("clusters/a", "1")
	s.want("clusters/a", "2")
}

func TestClockThatIsSetBackValidatesAgain(t *testing.T) {
	s := newSetup(t)
	a := s.create("clusters/a", "1")
	s.settle()
	s.want("clusters/a", "1")
	s.update(a, "2")
	s.clock.SetTime(s.clock.Now().Add(-time.Hour))
	s.want("clusters/a", "2")
}

// Every read must include the writes that were completed when the memory was validated, whatever runs beside it.
func TestReadsIncludeEarlierWrites(t *testing.T) {
	s := newSetup(t)
	// The clock jumps, so that some reads are remembered.
	var ticks atomic.Int64
	began := time.Now()
	now := func() time.Time { return began.Add(time.Duration(ticks.Add(1)) * time.Second) }
	r := replica.New(replica.Config{Store: s.store, MaxAge: time.Millisecond, Now: now})
	const keys = 5
	var (
		written [keys]atomic.Uint64 // the last revision of each key
		wg      sync.WaitGroup
	)
	for key := range keys {
		written[key].Store(s.create(fmt.Sprintf("clusters/%d", key), "0").Revision)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	wg.Go(func() {
		for ctx.Err() == nil {
			key := rand.IntN(keys)
			name := fmt.Sprintf("clusters/%d", key)
			o, err := s.store.Update(t.Context(), name, []byte("x"), written[key].Load())
			if err != nil {
				t.Error(err)
				return
			}
			written[key].Store(o.Revision)
		}
	})
	for range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := rand.IntN(keys)
				atLeast := written[key].Load()
				if _, err := r.AsOf(t.Context(), true); err != nil {
					t.Error(err)
					return
				}
				o, err := r.Get(t.Context(), fmt.Sprintf("clusters/%d", key))
				if err != nil || o.Revision < atLeast {
					t.Errorf("got revision %d and %v, want at least %d", o.Revision, err, atLeast)
					return
				}
			}
		})
	}
	wg.Wait()
}

// halfApplied is a store during a write: it has the new revision, but Get still returns the old object. A Store may do
// so until the write has returned.
type halfApplied struct {
	objects.Store
	old atomic.Pointer[objects.Object]
}

func (s *halfApplied) Get(ctx context.Context, key string) (objects.Object, error) {
	if o := s.old.Load(); o != nil && o.Key == key {
		return *o, nil
	}
	return s.Store.Get(ctx, key)
}

// A revoked pass would work for ever if its state during the revocation were remembered.
func TestHalfAppliedWriteIsNotRemembered(t *testing.T) {
	s := newSetup(t)
	store := &halfApplied{Store: s.store}
	r := replica.New(replica.Config{Store: store, MaxAge: maxAge, Now: s.clock.Now})
	o := s.create("passes/p", "1")
	store.old.Store(&o)
	s.delete(o)
	if _, err := r.Get(t.Context(), o.Key); err != nil {
		t.Fatal(err)
	}
	store.old.Store(nil)
	s.clock.Step(maxAge + time.Millisecond)
	if _, err := r.Get(t.Context(), o.Key); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

// lateStore delays the results of the next Revision and Get, which it has already read.
type lateStore struct {
	objects.Store
	revision, get *delay
}

// delay delays one result.
type delay struct {
	isUsed    atomic.Bool
	begun, to chan struct{}
}

func newDelay() *delay { return &delay{begun: make(chan struct{}), to: make(chan struct{})} }

func (d *delay) wait() {
	if d.isUsed.CompareAndSwap(false, true) {
		close(d.begun)
		<-d.to
	}
}

func (s *lateStore) Revision(ctx context.Context) (uint64, error) {
	rev, err := s.Store.Revision(ctx)
	s.revision.wait()
	return rev, err
}

func (s *lateStore) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	return objects.ChangesOf(ctx, s, from, limit)
}

func (s *lateStore) Get(ctx context.Context, key string) (objects.Object, error) {
	o, err := s.Store.Get(ctx, key)
	s.get.wait()
	return o, err
}

// A validation and a read that end late must not bring back what a newer validation has seen deleted.
func TestLateResultsAreNotRemembered(t *testing.T) {
	s := newSetup(t)
	o := s.create("passes/p", "1")
	store := &lateStore{s.store, newDelay(), newDelay()}
	r := replica.New(replica.Config{Store: store, MaxAge: maxAge, Now: s.clock.Now})
	fresh := func() {
		t.Helper()
		s.clock.Step(time.Millisecond)
		if _, err := r.AsOf(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	var late sync.WaitGroup
	late.Go(func() { _, _ = r.AsOf(t.Context(), false) })
	<-store.revision.begun
	fresh()
	s.clock.Step(time.Minute)
	fresh()
	late.Go(func() { _, _ = r.Get(t.Context(), o.Key) })
	<-store.get.begun
	s.delete(o)
	fresh()
	close(store.revision.to)
	close(store.get.to)
	late.Wait()
	if _, err := r.Get(t.Context(), o.Key); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}
