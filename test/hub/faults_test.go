package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/objects"
	objectskubernetes "github.com/clusterpass/clusterpass/shared/objects/kubernetes"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretskubernetes "github.com/clusterpass/clusterpass/shared/secrets/kubernetes"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// pair is the two stores of one gateway, with an object and a secret in them.
type pair struct {
	namespace string
	user      *rest.Config
	objects   *objectskubernetes.Store
	secrets   *secretskubernetes.Store
	object    objects.Object
	version   string
}

func (i *installation) pair(t *testing.T) *pair {
	t.Helper()
	name, user := i.namespace(t)
	p := &pair{
		namespace: name, user: user, objects: openObjects(t, user, name),
		secrets: secretskubernetes.New(newClient(t, user, name)),
	}
	var err error
	if p.object, err = p.objects.Create(t.Context(), "things/there", []byte("v")); err != nil {
		t.Fatal(err)
	}
	p.version, err = p.secrets.Create(t.Context(), "things/there", secrets.NewValue([]byte("v")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func openObjects(t *testing.T, user *rest.Config, namespace string) *objectskubernetes.Store {
	t.Helper()
	return objectskubernetes.New(objectskubernetes.Config{Client: newClient(t, user, namespace)})
}

// call is a method of one of the stores, and the error that it must return.
type call struct {
	err, want error
}

// callAll calls every method at once. Each must return before ctx ends.
func (p *pair) callAll(ctx context.Context, wantObjects, wantSecrets error) map[string]call {
	v := secrets.NewValue([]byte("w"))
	calls := map[string]func() error{
		"objects get":      func() error { _, err := p.objects.Get(ctx, "things/there"); return err },
		"objects list":     func() error { _, err := p.objects.List(ctx, "things/", 0, ""); return err },
		"objects revision": func() error { _, err := p.objects.Revision(ctx); return err },
		"objects changes":  func() error { _, _, err := p.objects.Changes(ctx, p.object.Revision, 10); return err },
		"objects create":   func() error { _, err := p.objects.Create(ctx, "things/new", []byte("v")); return err },
		"objects update": func() error {
			_, err := p.objects.Update(ctx, "things/there", []byte("w"), p.object.Revision)
			return err
		},
		"objects delete": func() error { _, err := p.objects.Delete(ctx, "things/there", p.object.Revision); return err },
		"objects watch": func() error {
			return p.objects.Watch(ctx, "", p.object.Revision, func(objects.Event) error { return nil }, nil)
		},
		"secrets get":     func() error { _, err := p.secrets.Get(ctx, "things/there"); return err },
		"secrets list":    func() error { _, err := p.secrets.List(ctx, nil); return err },
		"secrets create":  func() error { _, err := p.secrets.Create(ctx, "things/new", v, nil); return err },
		"secrets replace": func() error { _, err := p.secrets.Replace(ctx, "things/there", p.version, v); return err },
		"secrets delete":  func() error { return p.secrets.Delete(ctx, "things/there") },
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]call{}
	)
	for method, f := range calls {
		wg.Go(func() {
			want := wantObjects
			if strings.HasPrefix(method, "secrets") {
				want = wantSecrets
			}
			err := f()
			mu.Lock()
			defer mu.Unlock()
			errs[method] = call{err, want}
		})
	}
	wg.Wait()
	return errs
}

// wantAll fails the test unless every call returns the error of its store, before the test's patience ends.
func (p *pair) wantAll(t *testing.T, wantObjects, wantSecrets error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	for method, c := range p.callAll(ctx, wantObjects, wantSecrets) {
		if !errors.Is(c.err, c.want) || ctx.Err() != nil {
			t.Errorf("%s: got error %v, want %v", method, c.err, c.want)
		}
	}
}

// wantIntact fails the test unless the stores have what pair wrote.
func (p *pair) wantIntact(t *testing.T) {
	t.Helper()
	o, err := p.objects.Get(t.Context(), "things/there")
	if err != nil || o.Revision != p.object.Revision || string(o.Value) != "v" {
		t.Errorf("got the object %+v, %v; want %+v", o, err, p.object)
	}
	sec, err := p.secrets.Get(t.Context(), "things/there")
	if err != nil || sec.Version != p.version || string(sec.Value.Reveal()) != "v" {
		t.Errorf("got the secret %+v, %v; want version %s", sec, err, p.version)
	}
}

// watching starts a watch of another gateway, and returns the error that ends it.
func (p *pair) watching(t *testing.T) (started <-chan struct{}, ended <-chan error) {
	t.Helper()
	begun, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	var once sync.Once
	st := openObjects(t, p.user, p.namespace)
	go func() {
		defer cancel()
		done <- st.Watch(ctx, "", p.object.Revision, func(objects.Event) error { return nil },
			func(uint64) { once.Do(func() { close(begun) }) })
	}()
	return begun, done
}

// TestHubFrozen: a gateway must answer with an error while its hub does not, and continue afterwards.
func TestHubFrozen(t *testing.T) {
	p := cached.pair(t)
	started, ended := p.watching(t)
	<-started
	if err := cached.hub.Pause(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	results := p.callAll(ctx, objects.ErrUnavailable, secrets.ErrUnavailable)
	err := <-ended
	if resumeErr := cached.hub.Resume(t.Context(), cluster.APIServer); resumeErr != nil {
		t.Fatal(resumeErr)
	}
	for method, c := range results {
		if !errors.Is(c.err, c.want) || ctx.Err() != nil {
			t.Errorf("%s: got error %v, want %v", method, c.err, c.want)
		}
	}
	if !errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("a watch ended with %v, want %v", err, objects.ErrUnavailable)
	}
	// Writes that ended in ErrUnavailable may have been made, but nothing else may be lost.
	again := cached.pair(t)
	again.wantIntact(t)
	if _, err := p.objects.Revision(t.Context()); err != nil {
		t.Errorf("after the hub continued: %v", err)
	}
}

// TestCallEndsWithItsCaller: a caller that is gone must not wait for a frozen hub.
func TestCallEndsWithItsCaller(t *testing.T) {
	p := cached.pair(t)
	if err := cached.hub.Pause(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop := time.AfterFunc(300*time.Millisecond, cancel)
	defer stop.Stop()
	results := p.callAll(ctx, context.Canceled, context.Canceled)
	if err := cached.hub.Resume(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	for method, c := range results {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got error %v, want %v", method, c.err, c.want)
		}
	}
}

// create creates objects through restarts of the API server, and returns the acknowledged keys. A starting API server
// may not know any rights yet.
func create(
	t *testing.T, writer int, st *objectskubernetes.Store, writes *atomic.Int32, stopped <-chan struct{},
) []string {
	t.Helper()
	var acknowledged []string
	for n := 0; ; n++ {
		select {
		case <-stopped:
			return acknowledged
		case <-t.Context().Done():
			return acknowledged
		default:
		}
		key := fmt.Sprintf("things/%d-%04d", writer, n)
		_, err := st.Create(t.Context(), key, []byte(key))
		switch {
		case err == nil:
			acknowledged = append(acknowledged, key)
			writes.Add(1)
		case !errors.Is(err, objects.ErrUnavailable) && !errors.Is(err, objects.ErrForbidden):
			t.Errorf("create %s: %v", key, err)
			return acknowledged
		}
	}
}

const endKey = "things/end"

// follow watches through restarts until endKey is created, and returns the keys that it has seen. An API server that
// was restarted may have no history.
func follow(t *testing.T, st *objectskubernetes.Store, from uint64) map[string]bool {
	t.Helper()
	errEnd, seen := errors.New("end"), map[string]bool{}
	for t.Context().Err() == nil && !seen[endKey] {
		err := st.Watch(t.Context(), "", from, func(e objects.Event) error {
			if e.Object.Revision <= from {
				t.Errorf("revision %d comes after %d", e.Object.Revision, from)
			}
			from, seen[e.Object.Key] = e.Object.Revision, true
			if e.Object.Key == endKey {
				return errEnd
			}
			return nil
		}, nil)
		if errors.Is(err, objects.ErrCompacted) {
			var page objects.Page
			if page, err = st.List(t.Context(), "things/", 0, ""); err == nil {
				from = page.Revision
				for _, o := range page.Objects {
					seen[o.Key] = true
				}
				continue
			}
		}
		if !errors.Is(err, errEnd) && !errors.Is(err, objects.ErrUnavailable) && !errors.Is(err, objects.ErrForbidden) {
			t.Errorf("watch: %v", err)
			return seen
		}
	}
	return seen
}

// TestHubRestarted: no acknowledged write may be lost, and a watch that is resumed must get each of them.
func TestHubRestarted(t *testing.T) {
	p := cached.pair(t)
	var (
		writers, watcher sync.WaitGroup
		stopped          = make(chan struct{})
		writes           [3]atomic.Int32
		acknowledged     [3][]string
		seen             map[string]bool
	)
	watcher.Go(func() { seen = follow(t, openObjects(t, p.user, p.namespace), p.object.Revision) })
	for w := range acknowledged {
		st := openObjects(t, p.user, p.namespace)
		writers.Go(func() { acknowledged[w] = create(t, w, st, &writes[w], stopped) })
	}
	writeMore := func() {
		t.Helper()
		for w := range writes {
			before := writes[w].Load()
			waittest.Until(t, "a writer writes", func() bool { return writes[w].Load() > before })
		}
	}
	for range 2 {
		writeMore()
		if err := cached.hub.Restart(t.Context(), cluster.APIServer); err != nil {
			t.Error(err)
		}
	}
	writeMore()
	close(stopped)
	writers.Wait()
	p.wantIntact(t)
	if _, err := p.objects.Create(t.Context(), endKey, nil); err != nil {
		t.Fatal(err)
	}
	watcher.Wait()
	page, err := p.objects.List(t.Context(), "things/", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]bool{}
	for _, o := range page.Objects {
		stored[o.Key] = true
	}
	for _, keys := range acknowledged {
		for _, key := range keys {
			if !stored[key] || !seen[key] {
				t.Errorf("%s was acknowledged: stored %t, watched %t", key, stored[key], seen[key])
			}
		}
	}
}

// TestHistoryEndsWithRestart: a revision from before a restart of the API server may be too old for a watch. The
// gateway must then read everything again.
func TestHistoryEndsWithRestart(t *testing.T) {
	p := cached.pair(t)
	cached.compact(t, cached.revision(t))
	if err := cached.hub.Restart(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := p.objects.Create(t.Context(), "things/new", nil); err != nil {
		t.Fatal(err)
	}
	err := p.objects.Watch(t.Context(), "", p.object.Revision, func(objects.Event) error { return nil }, nil)
	if !errors.Is(err, objects.ErrCompacted) {
		t.Errorf("watch: %v, want %v", err, objects.ErrCompacted)
	}
	if _, _, err = p.objects.Changes(t.Context(), p.object.Revision, 10); !errors.Is(err, objects.ErrCompacted) {
		t.Errorf("changes: %v, want %v", err, objects.ErrCompacted)
	}
	p.wantIntact(t)
}

// TestPagesAfterCompaction: a list must continue although the hub no longer has the state of its first page.
func TestPagesAfterCompaction(t *testing.T) {
	p := uncached.pair(t)
	for n := range 5 {
		if _, err := p.objects.Create(t.Context(), fmt.Sprintf("pages/%d", n), nil); err != nil {
			t.Fatal(err)
		}
	}
	first, err := p.objects.List(t.Context(), "pages/", 2, "")
	if err != nil {
		t.Fatal(err)
	}
	late, err := p.objects.Create(t.Context(), "pages/9", nil)
	if err != nil {
		t.Fatal(err)
	}
	uncached.compact(t, late.Revision)
	rest, err := p.objects.List(t.Context(), "pages/", 0, first.Continue)
	if err != nil || len(rest.Objects) != 4 || rest.Revision != first.Revision {
		t.Errorf("the rest is %+v, %v; want 4 objects at revision %d", rest, err, first.Revision)
	}
}

// TestQuotaExceeded: the error must name the quota, which only an administrator of the hub can change. Existing objects
// stay usable.
func TestQuotaExceeded(t *testing.T) {
	p := cached.pair(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/records.store.clusterpass.io": resource.MustParse("2"), "count/secrets": resource.MustParse("1"),
		}},
	}
	quotas := cached.admin.CoreV1().ResourceQuotas(p.namespace)
	if _, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The controller of quotas counts objects of new kinds only after minutes.
	waittest.UntilNoError(t, "the quota counts", func(ctx context.Context) error {
		q, err := quotas.Get(ctx, quota.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		q.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
		_, err = quotas.UpdateStatus(ctx, q, metav1.UpdateOptions{})
		return err
	})
	_, err := p.objects.Create(t.Context(), "things/new", []byte("v"))
	if !errors.Is(err, objects.ErrForbidden) || !strings.Contains(err.Error(), "exceeded quota: small") {
		t.Errorf("create an object: %v, want %v and the quota", err, objects.ErrForbidden)
	}
	_, err = p.secrets.Create(t.Context(), "things/new", secrets.NewValue([]byte("v")), nil)
	if !errors.Is(err, secrets.ErrForbidden) || !strings.Contains(err.Error(), "exceeded quota: small") {
		t.Errorf("create a secret: %v, want %v and the quota", err, secrets.ErrForbidden)
	}
	p.wantIntact(t)
	if _, err := p.objects.Update(t.Context(), "things/there", []byte("w"), p.object.Revision); err != nil {
		t.Errorf("update: %v", err)
	}
	if _, err := p.secrets.Replace(t.Context(), "things/there", p.version, secrets.NewValue([]byte("w"))); err != nil {
		t.Errorf("replace: %v", err)
	}
}

// TestPermissionLost: a gateway whose rights were removed must neither hang nor use what it once read for ever.
func TestPermissionLost(t *testing.T) {
	p := cached.pair(t)
	started, ended := p.watching(t)
	<-started
	restore := cached.revoke(t, p.namespace, p.user)
	p.wantAll(t, objects.ErrForbidden, secrets.ErrForbidden)
	if err := <-ended; !errors.Is(err, objects.ErrForbidden) {
		t.Errorf("a watch ended with %v, want %v", err, objects.ErrForbidden)
	}
	restore()
	p.wantIntact(t)
}

// TestStoreMissing: before the administrator has prepared the hub, the error must name the command.
func TestStoreMissing(t *testing.T) {
	client := newClient(t, cached.hub.RESTConfig(), "no-such-namespace")
	_, err := objectskubernetes.New(objectskubernetes.Config{Client: client}).Create(t.Context(), "things/a", nil)
	if !errors.Is(err, objects.ErrUnavailable) || !strings.Contains(err.Error(), "init") {
		t.Errorf("create an object: %v", err)
	}
	_, err = secretskubernetes.New(client).Create(t.Context(), "things/a", secrets.NewValue([]byte("v")), nil)
	if !errors.Is(err, secrets.ErrUnavailable) || !strings.Contains(err.Error(), "init") {
		t.Errorf("create a secret: %v", err)
	}
}

// TestUnannouncedWrite: a gateway that dies between its write and the announcement must not hide the write from others.
func TestUnannouncedWrite(t *testing.T) {
	p := cached.pair(t)
	reader := objectskubernetes.New(objectskubernetes.Config{
		Client: newClient(t, p.user, p.namespace), AnnounceEvery: 200 * time.Millisecond,
	})
	from, err := reader.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.createUnannounced(t, "things/dying"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the write is read", func() bool {
		changes, _, err := reader.Changes(t.Context(), from, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(changes) == 1 && changes[0].Object.Key == "things/dying"
	})
}
