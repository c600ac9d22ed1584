package control_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/health"
	"github.com/clusterpass/clusterpass/shared/status"
)

const pods = `{apiVersion: search.karmada.io/v1alpha1, kind: ResourceRegistry, metadata: {name: %s, labels: {of: %s}},
spec: {targetCluster: {}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}}`

// An update through one gateway must never silently overwrite one through another.
func TestNoUpdateIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	h := newInstallation(t)
	one, two := h.gateway(), h.gateway()
	ctx := testContext(t)
	if _, err := one.dynamic(one.master()).Resource(registryGVR).Create(ctx, object(t, fmt.Sprintf(pods, "counter", "x")),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, writes = 4, 15
	var conflicts atomic.Int64
	var wg sync.WaitGroup
	for i := range writers {
		d := []*server{one, two}[i%2]
		client := d.dynamic(d.master()).Resource(registryGVR)
		wg.Go(func() {
			for done := 0; done < writes; {
				obj, err := client.Get(ctx, "counter", metav1.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(obj.GetAnnotations()["n"])
				obj.SetAnnotations(map[string]string{"n": strconv.Itoa(n + 1)})
				if _, err = client.Update(ctx, obj, metav1.UpdateOptions{}); err == nil {
					done++
				} else if apierrors.IsConflict(err) {
					conflicts.Add(1)
				} else {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	obj, err := two.dynamic(two.master()).Resource(registryGVR).Get(ctx, "counter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := obj.GetAnnotations()["n"]; n != strconv.Itoa(writers*writes) {
		t.Errorf("%s of %d writes are left", n, writers*writes)
	}
	t.Logf("%d conflicts", conflicts.Load())
}

func TestConcurrentPatchesMerge(t *testing.T) {
	h := newInstallation(t)
	one, two := h.gateway(), h.gateway()
	ctx := testContext(t)
	if _, err := one.dynamic(one.master()).Resource(registryGVR).Create(ctx, object(t, fmt.Sprintf(pods, "all", "x")),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, writes = 4, 10
	var wg sync.WaitGroup
	for i := range writers {
		d := []*server{one, two}[i%2]
		client := d.dynamic(d.master()).Resource(registryGVR)
		wg.Go(func() {
			for n := range writes {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"w%d-%d":"x"}}}`, i, n)
				for {
					_, err := client.Patch(ctx, "all", types.MergePatchType, patch, metav1.PatchOptions{})
					if err == nil {
						break
					} else if !apierrors.IsConflict(err) { // the API server retries five times
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	obj, err := two.dynamic(two.master()).Resource(registryGVR).Get(ctx, "all", metav1.GetOptions{})
	if err != nil || len(obj.GetAnnotations()) != writers*writes {
		t.Errorf("%d of %d patches are left, %v", len(obj.GetAnnotations()), writers*writes, err)
	}
}

func nextEvent(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch has ended")
			}
			if e.Type != watch.Bookmark {
				return e
			}
		case <-testContext(t).Done():
			t.Fatal("no event")
		}
	}
}

func TestWatch(t *testing.T) {
	h := newInstallation(t)
	d, other := h.gateway(), h.gateway()
	ctx := testContext(t)
	client := d.dynamic(d.master()).Resource(registryGVR)
	// a watch through one gateway sees writes through another
	otherClient := other.dynamic(other.master()).Resource(registryGVR)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	all, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	filtered, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "of=blue"})
	if err != nil {
		t.Fatal(err)
	}
	defer filtered.Stop()
	created, err := otherClient.Create(ctx, object(t, fmt.Sprintf(pods, "a", "blue")), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, all); e.Type != watch.Added ||
		e.Object.(metav1.Object).GetResourceVersion() != created.GetResourceVersion() {
		t.Errorf("%+v", e)
	}
	if e := nextEvent(t, filtered); e.Type != watch.Added {
		t.Errorf("%+v", e)
	}
	red, err := otherClient.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"of":"red"}}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, all); e.Type != watch.Modified || e.Object.(metav1.Object).GetLabels()["of"] != "red" {
		t.Errorf("%+v", e)
	}
	if e := nextEvent(t, filtered); e.Type != watch.Deleted ||
		e.Object.(metav1.Object).GetResourceVersion() != red.GetResourceVersion() {
		t.Errorf("%+v", e)
	}
	if err := otherClient.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, all); e.Type != watch.Deleted {
		t.Errorf("%+v", e)
	}
	expectResumable(t, client, created.GetResourceVersion())
}

// expectResumable also checks that a watch from an unknown version fails with 410.
func expectResumable(t *testing.T, client dynamic.ResourceInterface, version string) {
	t.Helper()
	ctx := testContext(t)
	resumed, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Stop()
	if a, b := nextEvent(t, resumed), nextEvent(t, resumed); a.Type != watch.Modified || b.Type != watch.Deleted {
		t.Errorf("%+v, %+v", a, b)
	}
	// A version of another store, and a compacted one, get 410, so that clients list again.
	tooNew, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: "999999"})
	if err != nil {
		t.Fatal(err)
	}
	defer tooNew.Stop()
	if e := nextEvent(t, tooNew); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("%+v", e)
	}
}

// Without the bookmark after the initial events, informers with streaming lists never become ready.
func TestWatchList(t *testing.T) {
	d := newInstallation(t).gateway()
	ctx := testContext(t)
	client := d.dynamic(d.master()).Resource(registryGVR)
	var last string // resourceVersion of the newest object
	for _, name := range []string{"a", "b"} {
		created, err := client.Create(ctx, object(t, fmt.Sprintf(pods, name, "x")), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = created.GetResourceVersion()
	}
	yes := true
	w, err := client.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, want := range []string{"a", "b", ""} {
		select {
		case e := <-w.ResultChan():
			got := e.Object.(metav1.Object)
			if got.GetName() != want {
				t.Errorf("%s %s, want %q", e.Type, got.GetName(), want)
			}
			if want == "" && (e.Type != watch.Bookmark || got.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" ||
				got.GetResourceVersion() != last) {
				t.Errorf("%+v", e)
			}
		case <-ctx.Done():
			t.Fatal("no event")
		}
	}
}

func TestPages(t *testing.T) {
	d := newInstallation(t).gateway()
	ctx := testContext(t)
	client := d.dynamic(d.master()).Resource(registryGVR)
	for i := range 7 {
		if _, err := client.Create(ctx, object(t, fmt.Sprintf(pods, fmt.Sprint("r", i), []string{"even", "odd"}[i%2])),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]string{"": "r0,r1,r2,r3,r4,r5,r6", "of=odd": "r1,r3,r5", "of=none": ""} {
		var names []string
		opts := metav1.ListOptions{Limit: 2, LabelSelector: selector}
		for {
			page, err := client.List(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) > 2 {
				t.Errorf("a page of %d", len(page.Items))
			}
			for _, item := range page.Items {
				names = append(names, item.GetName())
			}
			if opts.Continue = page.GetContinue(); opts.Continue == "" {
				break
			}
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("%q: %s, want %s", selector, got, want)
		}
	}
	if _, err := client.List(ctx, metav1.ListOptions{Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a foreign continue token: %v", err)
	}
	if _, err := client.List(ctx, metav1.ListOptions{ResourceVersion: "3",
		ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("an older state: %v", err)
	}
	one, err := client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=r3"})
	if err != nil || len(one.Items) != 1 || one.Items[0].GetName() != "r3" {
		t.Errorf("by name: %+v, %v", one, err)
	}
}

// An entry that can never match would allow nothing, so an administrator must get an error.
func TestServiceProxyForms(t *testing.T) {
	d := newInstallation(t).gateway()
	client := d.dynamic(d.master()).Resource(clusterGVR)
	create := func(entry string) error {
		_, err := client.Create(testContext(t), object(t, fmt.Sprintf(
			`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: m},
spec: {syncMode: Push, serviceProxy: [%q]}}`, entry)),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, entry := range []string{
		"services/shop/web", "services/shop/api:8080", "services/shop/api:http", "pods/*/p", "pods/a/*:80",
		"nodes/n1.example.com", "nodes/*", "*/*/*", "*/n1",
	} {
		if err := create(entry); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
	for _, entry := range []string{
		"", "*", "service/shop/web", "services/web", "services/shop/web/", "/services/shop/web", "services//web",
		"services/shop/", "services/shop/web:",
		"services/shop/https:web:443", "services/shop/We b", "nodes/a/n1", "deployments/shop/web", "services/*web/web",
	} {
		if err := create(entry); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.serviceProxy[0]") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// Without the bridge, kubectl get of a cluster must still show whether the cluster is reachable.
func TestProbeOnGet(t *testing.T) {
	d := newInstallation(t).gatewayWith(func(c *control.Config) {
		c.Probe = (&health.Prober{Objects: c.Objects, Members: c.Members, Log: c.Log}).Probe
	})
	ctx := testContext(t)
	member := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, `{"gitVersion":"v1.99.0"}`)
	}))
	defer member.Close()
	client := d.dynamic(d.master()).Resource(clusterGVR)
	for name, kc := range map[string]string{
		"alive": string(clustertest.ServerKubeconfig(member, `{"token":"token-of-alive"}`)),
		"dead":  kubeconfig("https://127.0.0.1:9", "token-of-dead"),
	} {
		obj := object(t,
			fmt.Sprintf(`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: %s}, spec: {}}`, name))
		if err := unstructured.SetNestedField(obj.Object, kc, "spec", "kubeconfig"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"alive": "True ClusterReady v1.99.0", "dead": "False unreachable "} {
		var c v1alpha1.Cluster
		var ready *metav1.Condition
		// repeat while the machine is too slow for the probe
		for again := true; again; again = ready != nil &&
			(ready.Reason == string(status.Timeout) || ready.Reason == string(status.StoreUnavailable)) {
			data, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c = v1alpha1.Cluster{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(data.Object, &c); err != nil {
				t.Fatal(err)
			}
			ready = meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
		}
		if ready == nil || string(ready.Status)+" "+ready.Reason+" "+c.Status.KubernetesVersion != want {
			t.Errorf("%s: %+v, want %s", name, c.Status, want)
		}
	}
}
