package clients

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

const finalizer = "clients.example.com/finalizer"

// copied are the labels of the ConfigMaps to copy. Each namespace has another.
var copied = labels.Set{"clients.example.com/copy": "yes"}

// copier copies each ConfigMap into a Secret of the same name, which the ConfigMap owns.
type copier struct {
	client   client.Client
	recorder events.EventRecorder
}

func (c copier) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var from corev1.ConfigMap
	if err := c.client.Get(ctx, r.NamespacedName, &from); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !from.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&from, finalizer) {
			return ctrl.Result{}, client.IgnoreNotFound(c.client.Update(ctx, &from))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&from, finalizer) {
		if err := c.client.Update(ctx, &from); err != nil {
			return ctrl.Result{}, err
		}
	}
	to := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: from.Name, Namespace: from.Namespace}}
	result, err := controllerutil.CreateOrUpdate(ctx, c.client, to, func() error {
		to.Data = map[string][]byte{"text": []byte(from.Data["text"])}
		return ctrl.SetControllerReference(&from, to, c.client.Scheme())
	})
	if err == nil && result != controllerutil.OperationResultNone {
		c.recorder.Eventf(&from, to, corev1.EventTypeNormal, "Copied", "Copy", "the Secret is %s", result)
	}
	return ctrl.Result{}, err
}

// TestControllerRuntime: a controller with a leader election, finalizers, owned objects and events must work. With
// /fleet/@ it works for the objects of both clusters, which have the same names.
func TestControllerRuntime(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	coverEverything(t)
	for _, p := range places {
		t.Run(p.context, func(t *testing.T) {
			ns, clusters := e2e.NewNamespace(t, e2e.Members...), []string{"member1"}
			if p == names {
				clusters = e2e.Members
			}
			startController(t, p, ns)
			for _, name := range clusters {
				checkCopies(t, e2e.DirectClient(t, name), ns)
			}
		})
	}
}

func startController(t *testing.T, p place, ns string) {
	t.Helper()
	lock, namespace := "lock"+p.name, ns+p.namespace
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig(t)},
		&clientcmd.ConfigOverrides{CurrentContext: p.context}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	skip, grace := true, 2*time.Minute
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", GracefulShutdownTimeout: &grace,
		Cache: ctrlcache.Options{DefaultNamespaces: map[string]ctrlcache.Config{namespace: {}},
			ByObject: map[client.Object]ctrlcache.ByObject{&corev1.ConfigMap{}: {Label: copied.AsSelector()}}},
		Controller:     ctrlconfig.Controller{SkipNameValidation: &skip, CacheSyncTimeout: waittest.Patience},
		LeaderElection: true, LeaderElectionID: lock, LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := copier{mgr.GetClient(), mgr.GetEventRecorder("copier")}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
}

// checkCopies writes a ConfigMap past the gateway, and waits for the Secret.
func checkCopies(t *testing.T, cluster kubernetes.Interface, ns string) {
	t.Helper()
	ctx, maps, secrets := t.Context(), cluster.CoreV1().ConfigMaps(ns), cluster.CoreV1().Secrets(ns)
	from, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Labels: copied},
		Data: map[string]string{"text": "first"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(text string) {
		t.Helper()
		waittest.UntilNoError(t, "the Secret has "+text, func(ctx context.Context) error {
			to, err := secrets.Get(ctx, "settings", metav1.GetOptions{})
			if err == nil && (string(to.Data["text"]) != text || !metav1.IsControlledBy(to, from)) {
				err = fmt.Errorf("it has %q and %v", to.Data, to.OwnerReferences)
			}
			return err
		})
	}
	wait("first")
	patch := []byte(`{"data": {"text": "second"}}`)
	if _, err := maps.Patch(ctx, "settings", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("second")
	if err := secrets.Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("second")
	waittest.UntilNoError(t, "the Event", func(ctx context.Context) error {
		list, err := cluster.EventsV1().Events(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "Copied" && e.Regarding.UID == from.UID {
				return nil
			}
		}
		return fmt.Errorf("none of the %d Events is it", len(list.Items))
	})
	if err := maps.Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.UntilNoError(t, "the garbage collector deletes the Secret", func(ctx context.Context) error {
		list, err := secrets.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("it exists: %v", list.Items[0].OwnerReferences)
		}
		return err
	})
}
