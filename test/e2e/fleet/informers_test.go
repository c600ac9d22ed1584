package fleet_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestFleetInformers holds: an informer, a controller-runtime manager and kubectl get -w, through writes, connections that are cut and API
// servers that start again, end with exactly what the clusters have. It goes on for CLUSTERPASS_SOAK, round after round.
func TestFleetInformers(t *testing.T) {
	soak, err := time.ParseDuration(cmp.Or(os.Getenv("CLUSTERPASS_SOAK"), "0s"))
	if err != nil {
		t.Fatalf("CLUSTERPASS_SOAK says how long to go on, as 2h: %v", err)
	}
	ns := e2e.NewNamespace(t, e2e.Members...)
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap, namespace: "+ns+"}")
	waittest.Until(t, "first list", func() bool { return k.Run(t, "get", "configmaps", "-n", ns).Code == 0 })
	cut := &e2e.Connections{}
	client := e2e.FleetClient(t, cut)
	ctx, cancel := context.WithTimeout(t.Context(), soak+12*time.Minute)
	defer cancel()
	// Objects of one name in two clusters have one key for an informer: the clusters write names of their own.
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "churn" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	reconciled := manage(ctx, t, e2e.FleetConfig(t, e2e.Shared(t).Kubeconfig, cut), ns)
	shown, wait := watched(ctx, t, k, ns)
	defer func() { cancel(); wait() }()
	has := map[string]func() map[string]string{
		"the informer": func() map[string]string {
			got := map[string]string{}
			for _, o := range informer.GetStore().List() {
				cm := o.(*corev1.ConfigMap)
				got[cm.Name] = cm.Annotations[e2e.SourceAnnotation] + " " + cm.Data["n"]
			}
			return got
		},
		"the manager":    reconciled,
		"kubectl get -w": func() map[string]string { return printedObjects(shown.String()) },
	}

	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for began, round := time.Now(), 1; round == 1 || time.Since(began) < soak; round++ {
		for step := range 160 {
			m := e2e.Members[rng.IntN(2)]
			switch {
			case step%40 == 25: // each twice
				if err := e2e.Clusters.Cluster(e2e.Members[step/40%2]).Restart(ctx, cluster.APIServer); err != nil {
					t.Fatal(err)
				}
			case rng.IntN(15) == 0:
				cut.Cut()
			default:
				churn(ctx, t, e2e.DirectClient(t, m).CoreV1().ConfigMaps(ns), fmt.Sprintf("%s-%d", m, rng.IntN(20)), rng)
			}
			if soak > 0 {
				e2e.Idle(time.Second) // a soak leaves the machine to others
			}
		}
		ends(t, has, union(ctx, t, ns, func(name, _ string) string { return name }))
		once(t, shown.String())
		t.Logf("round %d, after %s: all have what the clusters have; kubectl has printed %d events; %d goroutines", round,
			time.Since(began).Round(time.Second), strings.Count(shown.String(), "\n"), runtime.NumGoroutine())
	}
}

// union returns the cluster and the data of each object in both clusters, by its name in the fleet.
func union(ctx context.Context, t *testing.T, ns string, called func(name, cluster string) string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range e2e.Members {
		list, err := e2e.DirectClient(t, m).CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{LabelSelector: "churn"})
		if err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			all[called(cm.Name, m)] = m + " " + cm.Data["n"]
		}
	}
	return all
}

// ends waits until each of has is what it should be in the end.
func ends(t *testing.T, has map[string]func() map[string]string, want map[string]string) {
	t.Helper()
	for what, has := range has {
		var got map[string]string
		if !e2e.Within(t, func() bool { got = has(); return maps.Equal(got, want) }) {
			t.Fatalf("%s has %v\nthe clusters have %v", what, got, want)
		}
	}
}

// once fails where an event is among kubectl's lines twice: no two writes are alike.
func once(t *testing.T, lines string) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(lines) {
		if seen[line] {
			t.Errorf("kubectl has printed this event twice: %s", line)
		}
		seen[line] = true
	}
}

// printedObjects is what kubectl's lines of events add up to: where each object is, and its data.
func printedObjects(lines string) map[string]string {
	got := map[string]string{}
	for line := range strings.Lines(lines) {
		kind, object, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, state, _ := strings.Cut(object, " ")
		if got[name] = state; kind == "DELETED" {
			delete(got, name)
		}
	}
	return got
}

// manage runs a controller-runtime manager until ctx ends. It returns a function for the cluster and the data of each
// config map of the namespace, as its reconciler knows them.
func manage(ctx context.Context, t *testing.T, cfg *rest.Config, ns string) func() map[string]string {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	skip, grace := true, 2*time.Minute
	namespaces := map[string]ctrlcache.Config{ns: {LabelSelector: labels.SelectorFromSet(labels.Set{"churn": "yes"})}}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", GracefulShutdownTimeout: &grace,
		Cache:      ctrlcache.Options{DefaultNamespaces: namespaces},
		Controller: ctrlconfig.Controller{SkipNameValidation: &skip, CacheSyncTimeout: 12 * time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	known := map[string]string{}
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(
		reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var cm corev1.ConfigMap
			err := mgr.GetClient().Get(ctx, r.NamespacedName, &cm)
			mu.Lock()
			defer mu.Unlock()
			if known[r.Name] = cm.Annotations[e2e.SourceAnnotation] + " " + cm.Data["n"]; apierrors.IsNotFound(err) {
				delete(known, r.Name)
				err = nil
			}
			return reconcile.Result{}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the manager does not sync")
	}
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(known)
	}
}

// written counts what churn wrote: no two writes are alike.
var written atomic.Int64

// churn makes, changes or deletes one object.
func churn(ctx context.Context, t *testing.T, client interface {
	Create(ctx context.Context, cm *corev1.ConfigMap, o metav1.CreateOptions) (*corev1.ConfigMap, error)
	Update(ctx context.Context, cm *corev1.ConfigMap, o metav1.UpdateOptions) (*corev1.ConfigMap, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}, name string, rng *rand.Rand) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"churn": "yes"}},
		Data: map[string]string{"n": fmt.Sprint(written.Add(1))}}
	_, err := client.Create(ctx, cm, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if rng.IntN(2) == 0 {
			_, err = client.Update(ctx, cm, metav1.UpdateOptions{})
		} else {
			err = client.Delete(ctx, name, metav1.DeleteOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// watched runs kubectl get -w in the namespace until ctx ends. It returns the output, and a function that waits for the
// end. kubectl does not begin again, so the output is that of one watch.
func watched(ctx context.Context, t *testing.T, k e2e.Kubectl, ns string) (shown *waittest.Buffer, wait func()) {
	t.Helper()
	shown = &waittest.Buffer{}
	watching := k.Command(ctx, t, e2e.Clusters.BuiltKubectl(), "get", "configmaps", "-n", ns, "-l", "churn", "--watch",
		"--output-watch-events",
		"-o", `jsonpath={.type}{" "}{.object.metadata.name}{" `+
			`"}{.object.metadata.annotations.resource\.karmada\.io/cached-from-cluster}{" "}{.object.data.n}{"\n"}`)
	watching.Stdout, watching.Stderr = shown, e2e.Printed
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	return shown, func() { _ = watching.Wait() }
}
