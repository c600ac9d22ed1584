package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/status"
)

type faulty struct {
	objects.Store
	frozen           chan struct{} // if not nil, reads block until it is closed
	fail, hang       atomic.Bool
	lists, revisions atomic.Int32
}

var errDown = objects.Unavailable(errors.New("down"), 7*time.Second)

func (s *faulty) gate(ctx context.Context) error {
	if s.frozen != nil {
		<-s.frozen
	}
	if s.hang.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if s.fail.Load() {
		return errDown
	}
	return nil
}

func (s *faulty) Revision(ctx context.Context) (uint64, error) {
	s.revisions.Add(1)
	if err := s.gate(ctx); err != nil {
		return 0, err
	}
	return s.Store.Revision(ctx)
}

func (s *faulty) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	return objects.ChangesOf(ctx, s, from, limit)
}

func (s *faulty) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	s.lists.Add(1)
	if err := s.gate(ctx); err != nil {
		return objects.Page{}, err
	}
	return s.Store.List(ctx, prefix, limit, cont)
}

type fixture struct {
	*faulty
	*Authorizer
	t *testing.T
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	store, err := dir.Open(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	f := &faulty{Store: store}
	return &fixture{f, NewAuthorizer(Config{Store: f, Log: slog.New(slog.DiscardHandler)}), t}
}

func (h *fixture) create(key string, v any) objects.Object {
	h.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		h.t.Fatal(err)
	}
	o, err := h.Create(h.t.Context(), key, data)
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

func (h *fixture) grant() objects.Object {
	h.create("clusterroles/r", newRole("ignored", rule("get", ClusterGroup, "clusters/proxy", "c")))
	return h.create("clusterrolebindings/b", bind("ignored", "r", user("ann")))
}

func (h *fixture) authorize() status.Reason {
	h.t.Helper()
	err := h.Authorize(h.t.Context(), &identity.User{Name: "ann"}, Cluster("c", "GET", nil))
	if err == nil {
		return ""
	}
	return status.From(err).Reason
}

func (h *fixture) want(want status.Reason) {
	h.t.Helper()
	if got := h.authorize(); got != want {
		h.t.Fatalf("got %q, want %q", got, want)
	}
}

func TestChangesAreInForceSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		h.want(status.Forbidden)
		b := h.grant()
		// Frequent requests: a background read applies the change within seconds.
		for range 15 {
			time.Sleep(200 * time.Millisecond)
			h.authorize()
		}
		h.want("")
		// A request after a pause applies the change itself.
		if _, err := h.Delete(t.Context(), b.Key, b.Revision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(waitFrom)
		h.want(status.Forbidden)
		if n := h.lists.Load(); n != 2 {
			t.Errorf("listed %d times, want 2: changes are read from the log", n)
		}
		// The process is frozen for an hour.
		h.create("clusterrolebindings/c", bind("c", "r", group(identity.Authenticated)))
		time.Sleep(time.Hour)
		h.want("")
	})
}

func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		h.fail.Store(true)
		h.want(status.StoreUnavailable)
		before := h.lists.Load()
		h.want(status.StoreUnavailable) // at once
		if h.lists.Load() != before {
			t.Error("a failure is repeated at once")
		}
		h.fail.Store(false)
		h.grant()
		time.Sleep(retryAfter)
		h.want("")
		start := time.Now()
		h.fail.Store(true)
		for time.Since(start) < MaxAge-100*time.Millisecond {
			time.Sleep(90 * time.Millisecond)
			h.want("")
		}
		time.Sleep(100 * time.Millisecond)
		h.want(status.StoreUnavailable)
		err := h.Authorize(t.Context(), &identity.User{Name: "ann"}, Cluster("c", "GET", nil))
		if e := status.From(err); e.Code() != 503 || e.RetryAfter != 7*time.Second || !errors.Is(err, errDown) {
			t.Errorf("got %d, retry after %s: %v", e.Code(), e.RetryAfter, e.Err)
		}
		h.fail.Store(false)
		time.Sleep(retryAfter)
		h.want("")
	})
}

func TestStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		h.grant()
		h.want("")
		h.hang.Store(true)
		time.Sleep(waitFrom)
		for _, want := range []time.Duration{patience, 0, 0} { // the first waits, the others do not
			start := time.Now()
			h.want("")
			if waited := time.Since(start); waited != want {
				t.Errorf("waited %s, want %s", waited, want)
			}
		}
		time.Sleep(MaxAge)
		start := time.Now()
		h.want(status.StoreUnavailable)
		if waited := time.Since(start); waited > flightTime {
			t.Errorf("waited %s", waited)
		}
		// The next caller cancels its request.
		time.Sleep(MaxAge)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		_, err := h.Policy(ctx)
		if waited := time.Since(start); err == nil || waited != time.Second {
			t.Errorf("%v after %s", err, waited)
		}
		h.hang.Store(false)
		time.Sleep(flightTime + retryAfter)
		h.want("")
	})
}

// A grant that was revoked while the process was frozen during a read is not effective afterwards.
func TestFrozenWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		b := h.grant()
		h.want("")
		h.frozen = make(chan struct{})
		time.Sleep(freshFor)
		h.want("") // starts a background read
		if _, err := h.Delete(t.Context(), b.Key, b.Revision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(flightTime / 2)
		time.AfterFunc(time.Millisecond, func() { close(h.frozen) })
		h.want(status.Forbidden)
	})
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		var offset time.Duration
		h.cfg.Now = func() time.Time { return time.Now().Add(offset) }
		b := h.grant()
		h.want("")
		if _, err := h.Delete(t.Context(), b.Key, b.Revision); err != nil {
			t.Fatal(err)
		}
		offset = -time.Hour
		h.want(status.Forbidden)
		h.fail.Store(true)
		offset = -2 * time.Hour
		h.want(status.StoreUnavailable)
	})
}

func TestOneReadingForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		h.grant()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if got := h.authorize(); got != "" {
					t.Errorf("got %q", got)
				}
			})
		}
		wg.Wait()
		if n := h.lists.Load(); n != 2 {
			t.Errorf("%d lists for two prefixes", n)
		}
	})
}

func TestBrokenObjectsGrantNothing(t *testing.T) {
	h := newFixture(t)
	h.grant()
	for key, value := range map[string]string{
		"clusterroles/x": `{`, "clusterrolebindings/x": `[]`, "clusterrolebindings/y": `{"subjects":"all"}`,
		"clusterroles/z": `null`,
		"clusterrolebindings/case": `{"SUBJECTS":[{"kind":"Group","name":"system:authenticated"}],` +
			`"ROLEREF":{"kind":"ClusterRole","name":"r"}}`,
		"clusters/c": `{`,
	} {
		if _, err := h.Create(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	h.want("")
	if err := h.Authorize(t.Context(), &identity.User{Name: "bob"},
		Cluster("c", "GET", nil)); status.From(err).Reason != status.Forbidden {
		t.Errorf("got %v", err)
	}
}

func TestNext(t *testing.T) {
	h := newFixture(t)
	log := slog.New(slog.DiscardHandler)
	var s *snapshot
	var err error
	live := map[string]objects.Object{}
	for i := range 60 {
		for j := range i % 7 {
			key := []string{"clusterroles/", "clusterrolebindings/", "clusters/"}[(i+j)%3] + fmt.Sprint((i*7+j)%5)
			o, ok := live[key]
			switch {
			case !ok:
				if o, err = h.Create(t.Context(), key, value(key, i)); err == nil {
					live[key] = o
				}
			case (i+j)%4 == 0:
				_, err = h.Delete(t.Context(), key, o.Revision)
				delete(live, key)
			default:
				if o, err = h.Update(t.Context(), key, value(key, i), o.Revision); err == nil {
					live[key] = o
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if s, err = s.next(t.Context(), h.faulty, log); err != nil {
			t.Fatal(err)
		}
		all, err := load(t.Context(), h.faulty, log)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal([]any{s.revision, s.roles, s.bindings})
		b, _ := json.Marshal([]any{all.revision, all.roles, all.bindings})
		if string(a) != string(b) {
			t.Fatalf("after %d\nlog:  %s\nlist: %s", i, a, b)
		}
	}
}

func value(key string, i int) []byte {
	var v any = bind(key, fmt.Sprint(i%5), user(fmt.Sprint(i)))
	if strings.HasPrefix(key, RolePrefix) {
		v = newRole(key, rbacv1.PolicyRule{Verbs: []string{fmt.Sprint(i)}})
	}
	data, _ := json.Marshal(v)
	return data
}

func TestCompacted(t *testing.T) {
	h := newFixture(t)
	h.grant()
	s := &snapshot{revision: 1}
	got, err := s.next(t.Context(), compacted{h.faulty}, slog.Default())
	if err != nil || len(got.roles) != 1 || len(got.bindings) != 1 {
		t.Errorf("%v, %+v", err, got)
	}
}

type compacted struct{ *faulty }

func (c compacted) Watch(ctx context.Context, prefix string, from uint64, each func(objects.Event) error,
	progress func(uint64)) error {
	if from == 1 {
		return objects.ErrCompacted
	}
	return c.faulty.Watch(ctx, prefix, from, each, progress)
}

func (c compacted) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	return objects.ChangesOf(ctx, c, from, limit)
}

func BenchmarkLoad(b *testing.B) {
	n := &snapshot{roles: map[string]*rbacv1.ClusterRole{}, bindings: map[string]*rbacv1.ClusterRoleBinding{}}
	var all []objects.Object
	for i := range 10_000 {
		data, _ := json.Marshal(bind("x", "r", user(fmt.Sprint(i))))
		all = append(all, objects.Object{Key: fmt.Sprintf("clusterrolebindings/%d", i), Value: data})
	}
	for b.Loop() {
		for _, o := range all {
			n.put(o, false, slog.Default())
		}
	}
}
