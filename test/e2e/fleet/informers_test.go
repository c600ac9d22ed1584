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

// TestFleetInformers: controllers and kubectl get -w must miss no object despite cut connections and restarts.
// CLUSTERPASS_SOAK is the duration of repeated rounds.
func TestFleetInformers(t *testing.T) {
	soak, err := time.ParseDuration(cmp.Or(os.Getenv("CLUSTERPASS_SOAK"), "0s"))
	if err != nil {
		t.Fatalf("CLUSTERPASS_SOAK says how long to go on, as 2h: %v", err)
	}
	ns := e2e.NewNamespace(t, e2e.Members...)
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap, namespace: "+ns+"}")
	waittest.Until(t, "first list", func() bool { return k.Run(t, "get", "configmaps", "-n", ns).Code == 0 })
	connections := &e2e.Connections{}
	client := e2e.FleetClient(t, connections)
	ctx, cancel := context.WithTimeout(t.Context(), soak+12*time.Minute)
	defer cancel()
	// An informer's key has no cluster, so each cluster has names of its own.
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "churn" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	reconciled := startManager(ctx, t, e2e.FleetConfig(t, e2e.Shared(t).Kubeconfig, connections), ns)
	printed, wait := startKubectlWatch(ctx, t, k, ns)
	defer func() { cancel(); wait() }()
	states := map[string]func() map[string]string{
		"the informer": func() map[string]string {
			got := map[string]string{}
			for _, o := range informer.GetStore().List() {
				cm := o.(*corev1.ConfigMap)
				got[cm.Name] = cm.Annotations[e2e.SourceAnnotation] + " " + cm.Data["n"]
			}
			return got
		},
		"the manager":    reconciled,
		"kubectl get -w": func() map[string]string { return printedObjects(printed.String()) },
	}

	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for start, round := time.Now(), 1; round == 1 || time.Since(start) < soak; round++ {
		for step := range 160 {
			m := e2e.Members[rng.IntN(2)]
			switch {
			case step%40 == 25: // each cluster twice
				if err := e2e.Clusters.Cluster(e2e.Members[step/40%2]).Restart(ctx, cluster.APIServer); err != nil {
					t.Fatal(err)
				}
			case rng.IntN(15) == 0:
				connections.Cut()
			default:
				churn(ctx, t, e2e.DirectClient(t, m).CoreV1().ConfigMaps(ns), fmt.Sprintf("%s-%d", m, rng.IntN(20)), rng)
			}
			if soak > 0 {
				e2e.Idle(time.Second) // limits the load of a soak
			}
		}
		waitForStates(t, states, directState(ctx, t, ns, func(name, _ string) string { return name }))
		checkNoRepeats(t, printed.String())
		t.Logf("round %d, after %s: all have what the clusters have; kubectl has printed %d events; %d goroutines", round,
			time.Since(start).Round(time.Second), strings.Count(printed.String(), "\n"), runtime.NumGoroutine())
	}
}

// directState returns the cluster and the data of each object of both clusters, by fleetName.
func directState(ctx context.Context, t *testing.T, ns string,
	fleetName func(name, cluster string) string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range e2e.Members {
		list, err := e2e.DirectClient(t, m).CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{LabelSelector: "churn"})
		if err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			all[fleetName(cm.Name, m)] = m + " " + cm.Data["n"]
		}
	}
	return all
}

func waitForStates(t *testing.T, states map[string]func() map[string]string, want map[string]string) {
	t.Helper()
	for client, state := range states {
		var got map[string]string
		if !e2e.Within(t, func() bool { got = state(); return maps.Equal(got, want) }) {
			t.Fatalf("%s has %v\nthe clusters have %v", client, got, want)
		}
	}
}

// No two writes are equal, so each line of kubectl is unique.
func checkNoRepeats(t *testing.T, lines string) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(lines) {
		if seen[line] {
			t.Errorf("kubectl has printed this event twice: %s", line)
		}
		seen[line] = true
	}
}

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

// startManager runs a controller-runtime manager until ctx ends. The result returns the cluster and the data of each
// ConfigMap that it has reconciled.
func startManager(ctx context.Context, t *testing.T, cfg *rest.Config, ns string) func() map[string]string {
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

var writeCount atomic.Int64

func churn(ctx context.Context, t *testing.T, client interface {
	Create(ctx context.Context, cm *corev1.ConfigMap, o metav1.CreateOptions) (*corev1.ConfigMap, error)
	Update(ctx context.Context, cm *corev1.ConfigMap, o metav1.UpdateOptions) (*corev1.ConfigMap, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}, name string, rng *rand.Rand) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"churn": "yes"}},
		Data: map[string]string{"n": fmt.Sprint(writeCount.Add(1))}}
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

// startKubectlWatch runs kubectl get -w until ctx ends. kubectl does not reconnect, so the output is that of one watch.
func startKubectlWatch(ctx context.Context, t *testing.T, k e2e.Kubectl, ns string) (
	printed *waittest.Buffer, wait func()) {
	t.Helper()
	printed = &waittest.Buffer{}
	watching := k.Command(ctx, t, e2e.Clusters.BuiltKubectl(), "get", "configmaps", "-n", ns, "-l", "churn", "--watch",
		"--output-watch-events",
		"-o", `jsonpath={.type}{" "}{.object.metadata.name}{" `+
			`"}{.object.metadata.annotations.resource\.karmada\.io/cached-from-cluster}{" "}{.object.data.n}{"\n"}`)
	watching.Stdout, watching.Stderr = printed, e2e.Printed
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	return printed, func() { _ = watching.Wait() }
}
