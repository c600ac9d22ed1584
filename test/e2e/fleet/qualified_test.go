package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// byList is a ListerWatcher of a client without WatchList.
type byList struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported makes client-go list before it watches.
func (byList) IsWatchListSemanticsUnSupported() bool { return true }

// TestFleetQualifiedInformers: controllers must not mistake one cluster's object for another's:
//   - Informers, a controller-runtime manager and kubectl get -w end with the state of both clusters.
//   - A write by the object's name in the informer changes the object of the same cluster.
func TestFleetQualifiedInformers(t *testing.T) {
	ns := e2e.NewNamespace(t, e2e.Members...)
	k := qualified(t, fleet(t, "{apiVersion: v1, kind: ConfigMap, namespace: "+ns+"}, {apiVersion: v1, kind: Event}"))
	waittest.Until(t, "first list", func() bool { return k.Run(t, "get", "configmaps", "-n", ns).Code == 0 })
	connections := &e2e.Connections{}
	cfg := e2e.FleetConfig(t, e2e.Shared(t).Kubeconfig, connections)
	cfg.Host += "/@"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	stores := startInformers(ctx, t, client, ns)
	reconciled := startManager(ctx, t, cfg, ns)
	writerConfig := e2e.FleetConfig(t, e2e.Shared(t).Kubeconfig, nil) // without Cut, which could abort a write
	writerConfig.Host = cfg.Host
	writer, err := kubernetes.NewForConfig(writerConfig)
	if err != nil {
		t.Fatal(err)
	}
	writes := writer.CoreV1().ConfigMaps(ns)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: writer.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"})
	printed, wait := startKubectlWatch(ctx, t, k, ns)
	defer func() { cancel(); wait() }()

	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for step := range 120 {
		m := e2e.Members[rng.IntN(2)]
		name := fmt.Sprintf("c-%d", rng.IntN(8)) // the same names in both clusters
		switch {
		case step%30 == 29:
			connections.Cut()
		case step%5 == 4: // writes with the informer's name and resourceVersion
			for _, o := range stores["an informer"].List() {
				cm := o.(*corev1.ConfigMap).DeepCopy()
				cm.Data = map[string]string{"n": fmt.Sprint("written ", step)}
				if _, err := writes.Update(ctx, cm, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) &&
					!apierrors.IsNotFound(err) {
					t.Fatalf("%s: %v", cm.Name, err)
				}
				break
			}
		default:
			churn(ctx, t, e2e.DirectClient(t, m).CoreV1().ConfigMaps(ns), name, rng)
		}
	}
	states := storeStates(stores, ns)
	states["the manager"] = reconciled
	states["kubectl get -w"] = func() map[string]string { return printedObjects(printed.String()) }
	waitForStates(t, states, directState(ctx, t, ns, func(name, cluster string) string { return name + "@" + cluster }))
	checkOwnedObjects(ctx, t, writes, recorder, ns)
	for _, m := range e2e.Members {
		e2e.Direct(m).Must(t, "delete", "configmaps", "-n", ns, "-l", "churn")
		e2e.Direct(m).Must(t, "create", "configmap", "last", "-n", ns, "--from-literal=n="+m)
		e2e.Direct(m).Must(t, "label", "configmap", "last", "-n", ns, "churn=yes")
	}
	if err := writes.Delete(ctx, "last@member2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForStates(t, states, map[string]string{"last@member1": "member1 member1"})
	if got := e2e.Direct("member2").Must(t, "get", "configmaps", "-n", ns, "-l", "churn", "-o", "name"); got != "" {
		t.Errorf("member2 still has %s", got)
	}
}

func storeStates(stores map[string]cache.Store, ns string) map[string]func() map[string]string {
	states := map[string]func() map[string]string{}
	for client, store := range stores {
		states[client] = func() map[string]string {
			got := map[string]string{}
			for _, key := range store.ListKeys() {
				if o, ok, _ := store.GetByKey(key); ok {
					cm := o.(*corev1.ConfigMap)
					got[strings.TrimPrefix(key, ns+"/")] = cm.Annotations[e2e.SourceAnnotation] + " " + cm.Data["n"]
				}
			}
			return got
		}
	}
	return states
}

func startInformers(ctx context.Context, t *testing.T, client *kubernetes.Clientset, ns string) map[string]cache.Store {
	t.Helper()
	configMaps := client.CoreV1().ConfigMaps(ns)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = "churn"
			return configMaps.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = "churn"
			return configMaps.Watch(ctx, o)
		},
	}
	stores := map[string]cache.Store{}
	for name, lw := range map[string]cache.ListerWatcher{
		"an informer":          cache.ToListWatcherWithWatchListSemantics(lw, client),
		"an informer by lists": byList{lw},
	} {
		informer := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
		stopped := make(chan struct{})
		go func() { defer close(stopped); informer.RunWithContext(ctx) }() // ends with ctx
		t.Cleanup(func() { <-stopped })
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatalf("%s does not sync", name)
		}
		stores[name] = informer.GetStore()
	}
	return stores
}

// checkOwnedObjects expects an object with an owner, and an event of the owner, in the owner's cluster.
func checkOwnedObjects(ctx context.Context, t *testing.T, writes typedcorev1.ConfigMapInterface,
	recorder record.EventRecorder, ns string) {
	t.Helper()
	for _, m := range e2e.Members {
		owner, err := writes.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner@" + m}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "owned-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}}
		if owned, err = writes.Create(ctx, owned, metav1.CreateOptions{}); err != nil ||
			!strings.HasSuffix(owned.Name, "@"+m) || owned.OwnerReferences[0].Name != "owner@"+m {
			t.Fatalf("%+v, %v", owned, err)
		}
		recorder.Event(owner, corev1.EventTypeNormal, "Told", "of "+m)
		waittest.Until(t, "event of the owner in "+m, func() bool {
			return e2e.Direct(m).Must(t, "get", "events", "-n", ns, "-o",
				"jsonpath={.items[*].involvedObject.name} {.items[*].message}") == "owner of "+m
		})
	}
}

// TestFleetQualifiedKubectl: a name that kubectl prints must work in the next command, for the same cluster's object.
func TestFleetQualifiedKubectl(t *testing.T) {
	ns := e2e.CreatePods(t)
	k := qualified(t, fleet(t,
		`{apiVersion: v1, kind: "*"}, {apiVersion: policy/v1, kind: PodDisruptionBudget}, {apiVersion: apps/v1, kind: "*"}`))
	k.Env = []string{`KUBE_EDITOR=sed -i s/of:.*/of:\ edited/`}
	in := func(args ...string) []string { return append(args, "-n", ns) }
	for _, m := range e2e.Members {
		e2e.Direct(m).Must(t, in("create", "configmap", "settings", "--from-literal=of="+m)...)
		e2e.Direct(m).Must(t, in("label", "configmap", "settings", "names=yes")...)
	}
	both := []string{"configmap/settings@member1", "configmap/settings@member2"}
	listNames := in("get", "configmaps", "-l", "names", "-o", "name")
	if got := k.Must(t, listNames...); strings.TrimSpace(got) != strings.Join(both, "\n") {
		t.Fatalf("the names are %q", got)
	}
	dataOf := func(m string) string {
		return e2e.Direct(m).Must(t, in("get", "configmap", "settings", "-o", "jsonpath={.data.of}")...)
	}
	k.Must(t, in("annotate", both[0], both[1], "by=name")...)
	k.Must(t, in("wait", "configmap", "-l", "names", "--for=jsonpath={.metadata.annotations.by}=name", "--timeout=4m")...)
	k.Must(t, in("edit", both[1])...)
	if dataOf("member1") != "member1" || dataOf("member2") != "edited" {
		t.Errorf("edited in member2: %q, %q", dataOf("member1"), dataOf("member2"))
	}
	manifest := k.Must(t, in("get", "configmaps", "-l", "names", "-o", "yaml")...)
	manifest = strings.NewReplacer("of: member1", "of: first", "of: edited", "of: second").Replace(manifest)
	for _, command := range [][]string{{"replace"}, {"apply", "--server-side", "--force-conflicts"}} {
		k.WithInput(manifest).Must(t, append(command, "-f", "-")...)
		if dataOf("member1") != "first" || dataOf("member2") != "second" {
			t.Errorf("%s of what was printed: %q, %q", command, dataOf("member1"), dataOf("member2"))
		}
		manifest = k.Must(t, in("get", "configmaps", "-l", "names", "-o", "yaml")...)
	}
	const applied = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings@%s, namespace: %s}, data: {of: " +
		"applied}}\n"
	docs := fmt.Sprintf(applied, "member1", ns) + fmt.Sprintf(applied, "member2", ns)
	e2e.WantText(t, k.WithInput(docs).Must(t, "apply", "-f", "-"), "settings@member1 configured",
		"settings@member2 configured")
	e2e.WantText(t, k.WithInput(docs).Must(t, "apply", "-f", "-"), "settings@member1 unchanged",
		"settings@member2 unchanged")
	k.Must(t, in("create", "configmap", "alone@member2", "--from-literal=of=alone")...)
	k.WithInput("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: alone, namespace: "+ns+
		"}, data: {of: applied}}").Must(t, "apply", "-f", "-")
	if got := k.Must(t, in("get", "configmap", "alone", "-o",
		"jsonpath={.metadata.name} {.data.of}")...); got != "alone@member2 applied" {
		t.Errorf("applied by its name alone it is %q", got)
	}
	if got := e2e.Direct("member2").Must(t, in("get", "configmap", "settings", "-o", "json")...); strings.Contains(got,
		"@") {
		t.Errorf("member2 stores %s", got)
	}
	k.Must(t, in(append([]string{"delete", "--timeout=4m"}, strings.Fields(k.Must(t, listNames...))...)...)...)
	if got := k.Must(t, listNames...); got != "" {
		t.Errorf("deleted by what was printed, there are %q", got)
	}
	checkQualifiedPods(t, k, ns)
	checkQualifiedDrain(t, k, ns)
}

func checkQualifiedPods(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	in := func(args ...string) []string { return append(args, "-n", ns) }
	e2e.WantText(t, k.Must(t, in("get", "pods")...), "NAME", "CLUSTER", "same@member1", "same@member2",
		"on-member1@member1")
	for _, m := range e2e.Members {
		if got := k.Must(t, in("logs", "same@"+m)...); got != "I run in "+m+"\n" {
			t.Errorf("the logs of same@%s: %q", m, got)
		}
		if got := k.Must(t, append(in("exec", "same@"+m), "--", "echo", "here")...); got != "here\n" {
			t.Errorf("exec in same@%s: %q", m, got)
		}
		if got := k.Must(t, "get", "pods", "-n", ns+"@"+m, "-o", "name"); got != "pod/on-"+m+"\npod/same\n" {
			t.Errorf("a namespace of %s has %q", m, got)
		}
		// The namespace names the cluster, so that names have none, also below /fleet/@.
		for _, k := range []e2e.Kubectl{k, e2e.AtFleet(t, k)} {
			const name = "there"
			run := func(args ...string) string { return k.Must(t, append(args, "-n", ns+"@"+m)...) }
			run("create", "configmap", "there", "--from-literal=of="+m)
			run("edit", "configmap", "there")
			if got := strings.Fields(run("get", "configmaps", "-o", "name")); !slices.Contains(got, "configmap/"+name) {
				t.Errorf("a namespace of %s has %q", m, got)
			}
			k.WithInput(run("get", "configmap", name, "-o", "yaml")).Must(t, "apply", "--server-side", "--force-conflicts",
				"-f", "-")
			if got := e2e.Direct(m).Must(t,
				in("get", "configmap", "there", "-o", "jsonpath={.metadata.namespace} {.data.of}")...); got != ns+" edited" {
				t.Errorf("made in a namespace of %s: %q", m, got)
			}
			run("wait", "configmap/"+name, "--for=jsonpath={.data.of}=edited", "--timeout=4m")
			run("delete", "configmap/"+name, "--timeout=4m")
		}
	}
	e2e.WantText(t, k.Must(t, "get", "namespaces", "-o", "name"), "namespace/"+ns+"@member1", "namespace/"+ns+"@member2")
	if r := k.Run(t, "get", "pods", "-n", ns+"@nowhere"); r.Code == 0 ||
		!strings.Contains(r.Stderr, `no cluster "nowhere"`) {
		t.Errorf("a namespace of no cluster: %v", r)
	}
	watching := k.Start(t, e2e.Clusters.BuiltKubectl(), in("get", "pods", "--watch", "--no-headers", "--show-labels")...)
	for _, name := range []string{"same@member1", "same@member2"} {
		watching.WaitForLine("what is there", func(l string) bool { return strings.HasPrefix(l, name+" ") })
	}
	for _, m := range e2e.Members {
		e2e.Direct(m).Must(t, in("label", "pod", "same", "seen=yes")...)
		watching.WaitForLine("the change in "+m, func(l string) bool {
			return strings.HasPrefix(l, "same@"+m+" ") && strings.Contains(l, "seen=yes")
		})
	}
}

// checkQualifiedDrain drains a node, which waits for a disruption budget of its cluster, and evicts no other cluster's
// pod.
func checkQualifiedDrain(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	in := func(args ...string) []string { return append(args, "-n", ns) }
	node := e2e.Direct("member1").Must(t, in("get", "pod", "same", "-o", "jsonpath={.spec.nodeName}")...) + "@member1"
	for _, m := range e2e.Members {
		e2e.Direct(m).Apply(t, "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: budget, namespace: "+ns+
			"}, spec: {minAvailable: 1, selector: {matchLabels: {app: same}}}}")
	}
	t.Cleanup(func() { k.Run(t, "uncordon", node) })
	drain := k.Start(t, e2e.Clusters.BuiltKubectl(), "drain", node, "--force", "--pod-selector=app=same", "--timeout=4m")
	waittest.Until(t, "drain waits for the disruption budget", func() bool {
		return strings.Contains(drain.Stderr.String(), `"same@member1"`) &&
			strings.Contains(drain.Stderr.String(), "disruption budget")
	})
	k.Must(t, in("delete", "pdb", "budget@member1")...)
	drain.Line("pod/same@member1 evicted")
	drain.Line("node/" + node + " drained")
	if got := k.Must(t, in("get", "pods", "-l", "app=same", "-o", "name")...); got != "pod/same@member2\n" {
		t.Errorf("drained, there are %q", got)
	}
	k.Must(t, "uncordon", node)
	k.Must(t, in("delete", "pods", "--all", "--wait", "--timeout=4m")...)
	for _, m := range e2e.Members {
		if got := e2e.Direct(m).Must(t, in("get", "pods", "-o", "name")...); got != "" {
			t.Errorf("all deleted, %s has %q", m, got)
		}
	}
}

// TestFleetNamesWithAt: kubectl must reach a role with an @ in its own name by its listed name.
func TestFleetNamesWithAt(t *testing.T) {
	k := fleet(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole}`)
	for m, names := range map[string][]string{"member1": {"dev@example.com", "dev@member2"},
		"member2": {"dev", "dev@member2"}} {
		for _, name := range names {
			e2e.Direct(m).Must(t, "create", "clusterrole", name, "--verb=get", "--resource="+
				map[string]string{"member1": "pods", "member2": "nodes"}[m])
			t.Cleanup(func() { e2e.Direct(m).Run(t, "delete", "clusterrole", name, "--ignore-not-found") })
			e2e.Direct(m).Must(t, "label", "clusterrole", name, "at=yes")
		}
	}
	list := []string{"get", "clusterroles", "-l", "at", "-o", "name"}
	const prefix = "clusterrole.rbac.authorization.k8s.io/"
	waittest.Until(t, "first list", func() bool { return k.Run(t, list...).Code == 0 })
	got := strings.Fields(strings.ReplaceAll(k.Must(t, list...), prefix, ""))
	if strings.Join(got, " ") != "dev@example.com dev@member2@member1 dev dev@member2@member2" {
		t.Fatalf("they are called %q", got)
	}
	for name, want := range map[string]string{"dev@example.com": "pods", "dev@member2@member1": "pods", "dev": "nodes",
		"dev@member2": "nodes", "dev@member2@member2": "nodes", "dev@example.com@member1": "pods"} {
		if got := k.Must(t, "get", "clusterrole", name, "-o",
			"jsonpath={.metadata.name} {.rules[0].resources[0]}"); got != name+" "+want {
			t.Errorf("%s is %q", name, got)
		}
	}
	k.Must(t, "annotate", "clusterrole", "dev@member2@member1", "x=y")
	k.Must(t, "delete", "clusterrole", "dev@member2@member1", "dev@example.com@member1", "--timeout=4m")
	if got := e2e.Direct("member1").Must(t, "get", "clusterroles", "-l", "at", "-o", "name"); got != "" {
		t.Errorf("deleted, member1 has %s", got)
	}
	if got := strings.ReplaceAll(e2e.Direct("member2").Must(t, "get", "clusterroles", "-l", "at", "-o", "name"), prefix,
		""); got != "dev\ndev@member2\n" {
		t.Errorf("member2 has %q", got)
	}
}
