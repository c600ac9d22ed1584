package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// lateJoin is a fleet of member1 alone, until join adds member2 under the name late.
type lateJoin struct {
	t         *testing.T
	ctx       context.Context
	namespace string
	client    typedcorev1.ConfigMapInterface            // asks the fleet
	members   map[string]typedcorev1.ConfigMapInterface // ask each member directly
}

func newLateJoin(ctx context.Context, t *testing.T) *lateJoin {
	t.Helper()
	namespace := e2e.NewNamespace(t, e2e.Members...)
	e2e.CreateRegistry(t, namespace, "{clusterNames: [member1, late]}",
		"{apiVersion: v1, kind: ConfigMap, namespace: "+namespace+"}")
	f := &lateJoin{t: t, ctx: ctx, namespace: namespace, members: map[string]typedcorev1.ConfigMapInterface{}}
	for _, m := range e2e.Members {
		f.members[m] = e2e.DirectClient(t, m).CoreV1().ConfigMaps(namespace)
	}
	f.client = e2e.FleetClient(t, nil).CoreV1().ConfigMaps(namespace)
	waittest.UntilNoError(t, "the fleet lists ConfigMaps", func(ctx context.Context) error {
		_, err := f.client.List(ctx, metav1.ListOptions{})
		return err
	})
	return f
}

func (f *lateJoin) join() {
	f.t.Helper()
	from := e2e.Clusters.KubeconfigFile()
	out, err := e2e.CLI(f.t, "", "cluster", "add", "late", "--kubeconfig", from, "--context", "member2")
	if err != nil {
		f.t.Fatalf("%s%v", out, err)
	}
	f.t.Cleanup(func() { _, _ = e2e.CLI(f.t, "", "cluster", "remove", "late") })
}

func (f *lateJoin) list() *corev1.ConfigMapList {
	f.t.Helper()
	list, err := f.client.List(f.ctx, metav1.ListOptions{LabelSelector: "mine"})
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

func labelled(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mine": "yes"}},
		Data:       map[string]string{"n": data},
	}
}

// TestFleetOfOneVersions: a client of a fleet of one cluster must recognize its own write in an event.
func TestFleetOfOneVersions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	f := newLateJoin(ctx, t)
	version := f.list().ResourceVersion
	if !cursor.ValidOwn(version) {
		t.Fatalf("a list has version %q", version)
	}
	w, err := f.client.Watch(ctx, metav1.ListOptions{LabelSelector: "mine", ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	same := func(typ watch.EventType, written *corev1.ConfigMap, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		e := <-w.ResultChan()
		got, ok := e.Object.(*corev1.ConfigMap)
		if !ok || e.Type != typ || got.Name != written.Name || got.ResourceVersion != written.ResourceVersion ||
			!maps.Equal(got.Annotations, written.Annotations) {
			t.Errorf("the event is %+v\nthe write was answered with %+v", e, written)
		}
	}
	created, err := f.client.Create(ctx, labelled("one", "1"), metav1.CreateOptions{})
	same(watch.Added, created, err)
	changed := created.DeepCopy()
	changed.Data["n"] = "2"
	updated, err := f.client.Update(ctx, changed, metav1.UpdateOptions{})
	same(watch.Modified, updated, err)
	if _, err := f.client.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old version: %v", err)
	}
	got, err := f.members["member1"].Get(ctx, "one", metav1.GetOptions{})
	if err != nil || got.ResourceVersion != updated.ResourceVersion {
		t.Errorf("the cluster has version %s, the answer %s: %v", got.ResourceVersion, updated.ResourceVersion, err)
	}
}

// TestFleetOfOnePages: pages of a fleet of one cluster must equal those of the cluster.
func TestFleetOfOnePages(t *testing.T) {
	f := newLateJoin(t.Context(), t)
	for _, name := range []string{"one", "two", "three"} {
		if _, err := f.client.Create(t.Context(), labelled(name, "1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	count := func(l *corev1.ConfigMapList) string {
		if l.RemainingItemCount == nil {
			return "none"
		}
		return fmt.Sprint(*l.RemainingItemCount)
	}
	options := metav1.ListOptions{Limit: 1}
	for page := 1; page == 1 || options.Continue != ""; page++ {
		list, err := f.client.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		direct, err := f.members["member1"].List(t.Context(), options) // the token is the cluster's own
		if err != nil {
			t.Fatal(err)
		}
		if count(list) != count(direct) || list.Items[0].Name != direct.Items[0].Name {
			t.Errorf("page %d has %s and %s remain; the cluster's has %s, and %s remain", page, list.Items[0].Name, count(list),
				direct.Items[0].Name, count(direct))
		}
		options.Continue = list.Continue
	}
}

type seen struct {
	mu       sync.Mutex
	data     map[string][]string // each object's data, in order; "" for its deletion
	versions map[string]string
	faults   []string // versions that are not larger than those before them
}

func (s *seen) handlers() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.add(o, false) },
		UpdateFunc: func(_, o any) { s.add(o, false) },
		DeleteFunc: func(o any) { s.add(o, true) },
	}
}

func (s *seen) add(o any, deleted bool) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	cm := o.(*corev1.ConfigMap)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.versions[cm.Name]; before != "" {
		if c, err := resourceversion.CompareResourceVersion(before, cm.ResourceVersion); err != nil || c != -1 {
			s.faults = append(s.faults, fmt.Sprintf("%s: version %s follows %s", cm.Name, cm.ResourceVersion, before))
		}
	}
	s.versions[cm.Name] = cm.ResourceVersion
	data := cm.Data["n"]
	if deleted {
		data = ""
	}
	s.data[cm.Name] = append(s.data[cm.Name], data)
}

func (s *seen) all() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string][]string{}
	for name, data := range s.data {
		out[name] = slices.Clone(data)
	}
	return out
}

// history writes objects directly, and records what an informer must receive.
type history struct {
	*lateJoin
	*seen
	want map[string][]string
}

// write creates, changes or, with no data, deletes an object.
func (h *history) write(m, name, data string) {
	h.t.Helper()
	var err error
	key := name + "-" + m
	switch before := h.want[key]; {
	case data == "":
		err = h.members[m].Delete(h.ctx, key, metav1.DeleteOptions{})
	case len(before) == 0 || before[len(before)-1] == "":
		_, err = h.members[m].Create(h.ctx, labelled(key, data), metav1.CreateOptions{})
	default:
		_, err = h.members[m].Update(h.ctx, labelled(key, data), metav1.UpdateOptions{})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.want[key] = append(h.want[key], data)
}

func (h *history) arrived(when string) {
	h.t.Helper()
	if !e2e.Within(h.t, func() bool { return maps.EqualFunc(h.all(), h.want, slices.Equal[[]string]) }) {
		h.t.Fatalf("%s: the informer saw %v\nwant %v", when, h.all(), h.want)
	}
}

// TestFleetOfOneGrowsOnRealClusters: an informer must not lose or repeat an event when a second cluster joins. No
// version may become smaller.
func TestFleetOfOneGrowsOnRealClusters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	recorded := &seen{data: map[string][]string{}, versions: map[string]string{}}
	h := &history{newLateJoin(ctx, t), recorded, map[string][]string{}}
	cut := &e2e.Connections{}
	factory := informers.NewSharedInformerFactoryWithOptions(e2e.FleetClient(t, cut), 0,
		informers.WithNamespace(h.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "mine" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(h.handlers()); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	for _, name := range []string{"stays", "changes", "goes"} {
		h.write("member1", name, "1")
	}
	h.arrived("with one cluster")
	before := h.list().ResourceVersion

	h.write("member2", "waits", "1") // before its cluster joins
	h.join()
	n := 0
	waittest.Until(t, "an event of the cluster that joined", func() bool {
		n++
		h.write("member1", "changes", fmt.Sprint("joining ", n))
		return len(h.all()["waits-member2"]) > 0
	})
	h.write("member1", "goes", "")
	h.arrived("when the second joins")
	h.write("member2", "waits", "2")
	h.write("member1", "changes", "after")
	h.arrived("with both")
	cut.Cut()
	h.write("member2", "waits", "")
	h.write("member1", "goes", "again")
	h.arrived("after a cut")
	for _, fault := range h.faults {
		t.Error(fault)
	}
	h.refuses(before)
}

// refuses checks that a version of the fleet of one gets 410, since it does not cover the second cluster.
func (f *lateJoin) refuses(version string) {
	f.t.Helper()
	w, err := f.client.Watch(f.ctx, metav1.ListOptions{LabelSelector: "mine", ResourceVersion: version})
	if err == nil {
		w.Stop()
	}
	if !apierrors.IsResourceExpired(err) {
		f.t.Errorf("a watch from version %s of the fleet of one: %v", version, err)
	}
	if _, err := f.client.List(f.ctx, metav1.ListOptions{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
		f.t.Errorf("a list since version %s of the fleet of one: %v", version, err)
	}
	now := f.list().ResourceVersion
	if c, err := resourceversion.CompareResourceVersion(version, now); err != nil || c != -1 {
		f.t.Errorf("version %s of two clusters is not larger than %s of one: %v", now, version, err)
	}
}

// TestFleetOfOneWritesOfBefore: a write with a version from before a second cluster joined must not change the wrong
// object, or discard a change.
func TestFleetOfOneWritesOfBefore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	f := newLateJoin(ctx, t)
	original, err := f.client.Create(ctx, labelled("both", "1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.members["member2"].Create(ctx, labelled("both", "theirs"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.join()
	waittest.Until(t, "the fleet has both objects", func() bool { return len(f.list().Items) == 2 })
	bare := original.DeepCopy()
	delete(bare.Annotations, e2e.SourceAnnotation)
	if _, err := f.client.Update(ctx, bare, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update by a name that both have: %v", err)
	}
	changed := original.DeepCopy()
	changed.Data["n"] = "ours"
	updated, err := f.client.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil || updated.Annotations[e2e.SourceAnnotation] != "member1" {
		t.Fatalf("an update with a version from before: %+v, %v", updated, err)
	}
	changed.Data["n"] = "stale"
	if _, err := f.client.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old version from before: %v", err)
	}
	bare.Name, bare.ResourceVersion = "both@member1", original.ResourceVersion
	if _, err := f.client.Update(ctx, bare, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of NAME@CLUSTER with an old version from before: %v", err)
	}
	for m, want := range map[string]string{"member1": "ours", "member2": "theirs"} {
		if cm, err := f.members[m].Get(ctx, "both", metav1.GetOptions{}); err != nil || cm.Data["n"] != want {
			t.Errorf("%s has %v, %v; want %s", m, cm.Data, err, want)
		}
	}
}
