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
	"github.com/clusterpass/clusterpass/test/e2e"
)

// single prepares a namespace in both members and a fleet of member1 alone, until join adds member2 under the name late.
func single(t *testing.T, namespace string) (client typedcorev1.ConfigMapInterface, join func()) {
	t.Helper()
	e2e.CreateRegistry(t, namespace, "{clusterNames: [member1, late]}", "{apiVersion: v1, kind: ConfigMap, namespace: "+namespace+"}")
	for _, m := range e2e.Members {
		e2e.NewNamespace(t, e2e.Direct(m), namespace)
		t.Cleanup(func() { e2e.Direct(m).Run(t, "delete", "namespace", namespace, "--wait=false") })
	}
	client = e2e.FleetClient(t, nil).CoreV1().ConfigMaps(namespace)
	e2e.Eventually(t, func() bool { _, err := client.List(t.Context(), metav1.ListOptions{}); return err == nil })
	return client, func() {
		t.Helper()
		if out, err := e2e.CLI(t, "", "cluster", "add", "late", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context", "member2"); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "late") })
	}
}

// labelled is a ConfigMap that the tests' selector chooses.
func labelled(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mine": "yes"}}, Data: map[string]string{"n": data},
	}
}

// TestFleetOfOneVersions fails if a client of a fleet of one cluster could not recognize its own write in an event, or would see
// other versions than at the cluster.
func TestFleetOfOneVersions(t *testing.T) {
	client, _ := single(t, "single")
	own := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps("single")
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil || !cursor.ValidOwn(list.ResourceVersion) {
		t.Fatalf("a list has version %q: %v", list.ResourceVersion, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	same := func(typ watch.EventType, written *corev1.ConfigMap) {
		t.Helper()
		e := <-w.ResultChan()
		got, ok := e.Object.(*corev1.ConfigMap)
		if !ok || e.Type != typ || got.Name != written.Name || got.ResourceVersion != written.ResourceVersion ||
			!maps.Equal(got.Annotations, written.Annotations) {
			t.Errorf("the event is %+v\nthe write was answered with %+v", e, written)
		}
	}
	created, err := client.Create(ctx, labelled("one", "1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(watch.Added, created)
	changed := created.DeepCopy()
	changed.Data["n"] = "2"
	updated, err := client.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(watch.Modified, updated)
	if _, err := client.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old version: %v", err)
	}
	if got, err := own.Get(ctx, "one", metav1.GetOptions{}); err != nil || got.ResourceVersion != updated.ResourceVersion {
		t.Errorf("the cluster has version %s, the answer %s: %v", got.ResourceVersion, updated.ResourceVersion, err)
	}
	for _, name := range []string{"two", "three"} {
		if _, err := client.Create(ctx, labelled(name, "1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for cont, pages := "", 0; pages == 0 || cont != ""; pages++ {
		fleet, err := client.List(ctx, metav1.ListOptions{Limit: 1, Continue: cont})
		if err != nil {
			t.Fatal(err)
		}
		direct, err := own.List(ctx, metav1.ListOptions{Limit: 1, Continue: cont}) // the token is the cluster's own
		if err != nil {
			t.Fatal(err)
		}
		if f, d := fleet.RemainingItemCount, direct.RemainingItemCount; (f == nil) != (d == nil) || f != nil && *f != *d {
			t.Errorf("page %d: the fleet and the cluster report different counts: %v, %v", pages, f, d)
		}
		cont = fleet.Continue
	}
}

// seen records what an informer's handlers are called with.
type seen struct {
	mu       sync.Mutex
	data     map[string][]string // each object's data, in order; "" for its deletion
	versions map[string]string
	faults   []string
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

// TestFleetOfOneGrows fails if an informer would lose or repeat an event, or see a smaller version of an object, when a second
// cluster joins the fleet of one that it watches; or if a write with a version from before would change another object.
func TestFleetOfOneGrows(t *testing.T) {
	client, join := single(t, "grows")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	members := map[string]typedcorev1.ConfigMapInterface{}
	for _, m := range e2e.Members {
		members[m] = e2e.DirectClient(t, m).CoreV1().ConfigMaps("grows")
	}
	got := &seen{data: map[string][]string{}, versions: map[string]string{}}
	cut := &e2e.Connections{}
	factory := informers.NewSharedInformerFactoryWithOptions(e2e.FleetClient(t, cut), 0, informers.WithNamespace("grows"),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "mine" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { got.add(o, false) },
		UpdateFunc: func(_, o any) { got.add(o, false) },
		DeleteFunc: func(o any) { got.add(o, true) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}

	want := map[string][]string{}
	apply := func(m, name, data string) {
		t.Helper()
		var err error
		key := name + "-" + m
		switch before := want[key]; {
		case data == "":
			err = members[m].Delete(ctx, key, metav1.DeleteOptions{})
		case len(before) == 0 || before[len(before)-1] == "":
			_, err = members[m].Create(ctx, labelled(key, data), metav1.CreateOptions{})
		default:
			_, err = members[m].Update(ctx, labelled(key, data), metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		want[key] = append(want[key], data)
	}
	arrived := func(what string) {
		t.Helper()
		var have map[string][]string
		ok := e2e.Within(t, func() bool {
			got.mu.Lock()
			defer got.mu.Unlock()
			have = map[string][]string{}
			for name, data := range got.data {
				have[name] = slices.Clone(data)
			}
			return maps.EqualFunc(have, want, slices.Equal[[]string])
		})
		if !ok {
			t.Fatalf("%s: the informer saw %v\nwant %v", what, have, want)
		}
	}
	for _, name := range []string{"stays", "changes", "goes"} {
		apply("member1", name, "1")
	}
	arrived("alone")
	kept, err := client.Get(ctx, "stays-member1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.List(ctx, metav1.ListOptions{LabelSelector: "mine"})
	if err != nil {
		t.Fatal(err)
	}

	apply("member2", "waits", "1") // as the second has it when it joins
	join()
	n := 0
	e2e.Eventually(t, func() bool { // until after it has joined
		n++
		apply("member1", "changes", fmt.Sprint("joining ", n))
		got.mu.Lock()
		defer got.mu.Unlock()
		return len(got.data["waits-member2"]) > 0
	})
	apply("member1", "goes", "")
	arrived("the second joins")
	apply("member2", "waits", "2")
	apply("member1", "changes", "after")
	arrived("both")
	cut.Cut()
	apply("member2", "waits", "")
	apply("member1", "goes", "again")
	arrived("after a cut")
	got.mu.Lock()
	for _, fault := range got.faults {
		t.Error(fault)
	}
	got.mu.Unlock()

	resumes(ctx, t, client, before.ResourceVersion)
	writesOfBefore(ctx, t, client, members, kept)
}

// resumes holds that a version of the fleet of one is refused with 410, since it does not cover the second cluster.
func resumes(ctx context.Context, t *testing.T, client typedcorev1.ConfigMapInterface, version string) {
	t.Helper()
	w, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "mine", ResourceVersion: version})
	if err == nil {
		w.Stop()
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from version %s of the fleet of one: %v", version, err)
	}
	if _, err := client.List(ctx, metav1.ListOptions{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list since version %s of the fleet of one: %v", version, err)
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := resourceversion.CompareResourceVersion(version, list.ResourceVersion); err != nil || c != -1 {
		t.Errorf("version %s of two clusters is not larger than %s of one: %v", list.ResourceVersion, version, err)
	}
}

// writesOfBefore holds that an object which was read in the fleet of one is compared with that cluster's, and no other, though the
// second cluster has one of that name now.
func writesOfBefore(
	ctx context.Context, t *testing.T, client typedcorev1.ConfigMapInterface, members map[string]typedcorev1.ConfigMapInterface, kept *corev1.ConfigMap,
) {
	t.Helper()
	if _, err := members["member2"].Create(ctx, labelled(kept.Name, "theirs"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bare := kept.DeepCopy()
	delete(bare.Annotations, e2e.SourceAnnotation)
	if _, err := client.Update(ctx, bare, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update by a name that both have: %v", err)
	}
	changed := kept.DeepCopy()
	changed.Data["n"] = "ours"
	updated, err := client.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil || updated.Annotations[e2e.SourceAnnotation] != "member1" {
		t.Fatalf("an update with a version from before: %+v, %v", updated, err)
	}
	if _, err := client.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old version from before: %v", err)
	}
	for m, want := range map[string]string{"member1": "ours", "member2": "theirs"} {
		if cm, err := members[m].Get(ctx, kept.Name, metav1.GetOptions{}); err != nil || cm.Data["n"] != want {
			t.Errorf("%s has %v, %v; want %s", m, cm.Data, err, want)
		}
	}
}
