package fleet_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// kubeconfigThroughProxy returns a kubeconfig that reaches a member through a TCP proxy, whose connections are in link.
func kubeconfigThroughProxy(t *testing.T, member string, link *e2e.Connections) string {
	t.Helper()
	kc, err := clientcmd.LoadFromFile(e2e.Clusters.KubeconfigFile())
	if err != nil {
		t.Fatal(err)
	}
	c := kc.Clusters[kc.Contexts[member].Cluster]
	to, err := url.Parse(c.Server)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close(); link.Close() })
	go func() { // ends with the listener
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			link.Add(near)
			far, err := net.Dial("tcp", to.Host)
			if err != nil {
				_ = near.Close()
				continue
			}
			link.Add(far)
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() { // ends with either connection
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = near.Close(), far.Close()
				}()
			}
		}
	}()
	c.Server = "https://" + ln.Addr().String()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFleetWatch: a client that reconnects with any version must not miss or repeat events of some cluster.
func TestFleetWatch(t *testing.T) {
	fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	ns := e2e.NewNamespace(t, e2e.Members...)
	client := e2e.FleetClient(t, nil).CoreV1().ConfigMaps(ns)
	var list *corev1.ConfigMapList
	waittest.Until(t, "first list", func() bool {
		var err error
		list, err = client.List(t.Context(), metav1.ListOptions{LabelSelector: "mine"})
		return err == nil
	})
	var created []string
	for i := range 6 {
		m := e2e.Members[i%2]
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i),
			Labels: map[string]string{"mine": "yes"}}}
		if _, err := e2e.DirectClient(t, m).CoreV1().ConfigMaps(ns).Create(t.Context(), cm,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		created = append(created, cm.Name+"@"+m)
	}
	read := func(version string, n int) (seen, versions []string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
		defer cancel()
		w, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "mine", ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for range n {
			e, ok := <-w.ResultChan()
			cm, isMap := e.Object.(*corev1.ConfigMap)
			if !ok || !isMap || e.Type != watch.Added {
				t.Fatalf("after %d events: %+v", len(seen), e)
			}
			seen, versions = append(seen, cm.Name+"@"+cm.Annotations[e2e.SourceAnnotation]), append(versions, cm.ResourceVersion)
		}
		return seen, versions
	}
	seen, versions := read(list.ResourceVersion, len(created))
	if got, want := slices.Sorted(slices.Values(seen)), slices.Sorted(slices.Values(created)); !slices.Equal(got, want) {
		t.Fatalf("watched %q, want %q", got, want)
	}
	before := list.ResourceVersion
	for i, v := range versions {
		if c, err := resourceversion.CompareResourceVersion(before, v); err != nil || c != -1 {
			t.Errorf("version %s does not follow %s: %d, %v", v, before, c, err)
		}
		before = v
		rest, _ := read(v, len(created)-i-1)
		if got := slices.Sorted(slices.Values(slices.Concat(seen[:i+1], rest))); !slices.Equal(got,
			slices.Sorted(slices.Values(created))) {
			t.Errorf("from event %d it goes on with %q, after %q", i, rest, seen[:i+1])
		}
	}
	for _, version := range []string{"", "0"} {
		if seen, _ := read(version, len(created)); !slices.Equal(slices.Sorted(slices.Values(seen)),
			slices.Sorted(slices.Values(created))) {
			t.Errorf("from %q: %q", version, seen)
		}
	}
	checkWritesOfEvents(t, client, list.ResourceVersion)
	for version, want := range map[string]string{"5": "Expired", "1041200010000000000": "Expired",
		strings.Replace(list.ResourceVersion, "1041", "1099", 1): "BadRequest"} {
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err == nil {
			w.Stop()
		}
		if string(apierrors.ReasonForError(err)) != want {
			t.Errorf("watch from %q: %v, want %s", version, err, want)
		}
	}
}

func checkWritesOfEvents(t *testing.T, client typedcorev1.ConfigMapInterface, version string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	w, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "mine", ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	cm := (<-w.ResultChan()).Object.(*corev1.ConfigMap)
	w.Stop()
	cm.Data = map[string]string{"a": "b"}
	updated, err := client.Update(t.Context(), cm, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update with an event's version: %v", err)
	}
	if _, err := client.Update(t.Context(), cm, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a second update with it: %v", err)
	}
	if err := client.Delete(t.Context(), cm.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			ResourceVersion: &cm.ResourceVersion}}); !apierrors.IsConflict(err) {
		t.Errorf("a deletion with an old version: %v", err)
	}
	if err := client.Delete(t.Context(), cm.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &updated.ResourceVersion}}); err != nil {
		t.Errorf("a deletion with the version of an answer: %v", err)
	}
}

// TestFleetWatchKubectl: kubectl get --watch, delete and wait must not hang or miss events at the fleet.
func TestFleetWatchKubectl(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	ns := e2e.NewNamespace(t, e2e.Members...)
	for _, m := range e2e.Members {
		e2e.Direct(m).Must(t, "create", "configmap", "waited", "-n", ns)
	}
	waittest.Until(t, "fleet has the config map", func() bool {
		return k.Run(t, "get", "configmap", "waited@member1", "-n", ns).Code == 0
	})
	k.Start(t, e2e.Clusters.BuiltKubectl(), "get", "configmap", "waited@member2", "-n", ns, "--watch", "--no-headers").
		WaitForLine("watch by name", func(l string) bool { return strings.HasPrefix(l, "waited@member2") })
	if got := k.Must(t, "delete", "configmap", "waited@member1", "-n", ns, "--timeout=4m"); !strings.Contains(got,
		"deleted") {
		t.Errorf("delete: %q", got)
	}
	k.Must(t, "wait", "configmap", "waited", "-n", ns, "--for=jsonpath={.metadata.name}=waited", "--timeout=4m")
	e2e.Direct("member2").Must(t, "label", "configmap", "waited", "-n", ns, "x=y")
	k.Must(t, "wait", "configmap", "waited@member2", "-n", ns, "--for=jsonpath={.metadata.labels.x}=y", "--timeout=4m")
}

// TestFleetWatchJoins: an informer must see a new cluster's objects. The watch ends when a cluster is removed, because
// only a new list is without its objects.
func TestFleetWatchJoins(t *testing.T) {
	ns := e2e.NewNamespace(t, e2e.Members...)
	e2e.CreateRegistry(t, "joins", "{clusterNames: [member1, late]}", "{apiVersion: v1, kind: ConfigMap, namespace: "+ns+
		"}")
	for _, m := range e2e.Members {
		e2e.Direct(m).Must(t, "create", "configmap", "of-"+m, "-n", ns)
	}
	client := e2e.FleetClient(t, nil).CoreV1().ConfigMaps(ns)
	options := metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}
	waittest.Until(t, "first list", func() bool {
		list, err := client.List(t.Context(), options)
		if err != nil {
			return false
		}
		options.ResourceVersion = list.ResourceVersion
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w, err := client.Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	addMember2As(t, "late", e2e.Clusters.KubeconfigFile())
	e := <-w.ResultChan()
	if cm, ok := e.Object.(*corev1.ConfigMap); !ok || e.Type != watch.Added || cm.Name != "of-member2" ||
		cm.Annotations[e2e.SourceAnnotation] != "late" {
		t.Fatalf("with the cluster comes %+v", e)
	}
	for i, m := range []string{"member1", "member2"} {
		e2e.Direct(m).Must(t, "label", "configmap", "of-"+m, "-n", ns, "seen=yes")
		e := <-w.ResultChan()
		if cm, ok := e.Object.(*corev1.ConfigMap); !ok || e.Type != watch.Modified ||
			cm.Annotations[e2e.SourceAnnotation] != []string{"member1", "late"}[i] {
			t.Fatalf("a change in %s brings %+v", m, e)
		}
	}
	if out, err := e2e.CLI(t, "", "cluster", "remove", "late"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("without the cluster comes %+v", e)
	}
}

// TestFleetWatchLosesACluster: a caller without a grant must not receive the cluster's events.
func TestFleetWatchLosesACluster(t *testing.T) {
	e2e.CreateRegistry(t, "loses", "{}", "{apiVersion: v1, kind: ConfigMap}")
	ns := e2e.NewNamespace(t, e2e.Members...)
	for _, m := range e2e.Members {
		e2e.Grant(t, m, "loses-member")
		e2e.Direct(m).Must(t, "create", "configmap", "lost", "-n", ns, "--from-literal=of="+m)
	}
	client := e2e.FleetClientOf(t, e2e.CertificateKubeconfig(t, "loses-member"), nil).CoreV1().ConfigMaps(ns)
	options := metav1.ListOptions{FieldSelector: "metadata.name=lost"}
	listReturns := func(want ...string) func() bool {
		return func() bool {
			list, err := client.List(t.Context(), options)
			var got []string
			if err == nil {
				for _, cm := range list.Items {
					got = append(got, cm.Data["of"])
				}
			}
			return slices.Equal(got, want)
		}
	}
	waittest.Until(t, "list of both clusters", listReturns(e2e.Members...))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var w watch.Interface
	waittest.Until(t, "first watch", func() bool { // the bridge caches grants apart from the functions
		var err error
		w, err = client.Watch(ctx, options)
		return err == nil
	})
	defer w.Stop()
	for range e2e.Members {
		if e := <-w.ResultChan(); e.Type != watch.Added {
			t.Fatalf("%+v", e)
		}
	}
	if out, err := e2e.CLI(t, e2e.GrantYAML("member2", "loses-member"), "delete", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("without the grant comes %+v", e)
	}
	waittest.Until(t, "list without the lost cluster", listReturns("member1"))
}

func addMember2As(t *testing.T, name, kubeconfig string) {
	t.Helper()
	if out, err := e2e.CLI(t, "", "cluster", "add", name, "--kubeconfig", kubeconfig, "--context",
		"member2"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", name) })
}

func configMapWith(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mine": "yes"}},
		Data: map[string]string{"a": data}}
}

// TestFleetWatchReturns: a watch must not miss the changes of a cluster that returns without its history of events:
//   - The fleet lists the cluster again and sends the difference as events.
//   - Events of other clusters continue meanwhile. The watch continues after the difference.
func TestFleetWatchReturns(t *testing.T) {
	ns := e2e.NewNamespace(t, e2e.Members...)
	e2e.CreateRegistry(t, "returns", "{clusterNames: [member1, away]}", "{apiVersion: v1, kind: ConfigMap, namespace: "+ns+
		"}")
	link := &e2e.Connections{}
	kubeconfig := kubeconfigThroughProxy(t, "member2", link)
	addMember2As(t, "away", kubeconfig)
	near, far := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(ns),
		e2e.DirectClient(t, "member2").CoreV1().ConfigMaps(ns)
	for _, name := range []string{"stays", "changes", "goes", "again"} {
		if _, err := far.Create(t.Context(), configMapWith(name, "old"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	client := e2e.FleetClient(t, nil).CoreV1().ConfigMaps(ns)
	var list *corev1.ConfigMapList
	waittest.Until(t, "list of four objects", func() bool {
		var err error
		list, err = client.List(t.Context(), metav1.ListOptions{LabelSelector: "mine"})
		return err == nil && len(list.Items) == 4
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "mine", ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func() string {
		t.Helper()
		e := <-w.ResultChan()
		cm, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("instead of an event came %+v", e)
		}
		list.ResourceVersion = cm.ResourceVersion
		return fmt.Sprintf("%s %s@%s %s", e.Type, cm.Name, cm.Annotations[e2e.SourceAnnotation], cm.Data["a"])
	}

	link.Close()
	beforeWrites, err := far.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writeWhileAway(ctx, t, near, far)
	if got := next(); got != "ADDED meanwhile@member1 new" {
		t.Errorf("while one is away comes %s", got)
	}
	if err := e2e.Clusters.Cluster("member2").Restart(ctx, cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	expectHistoryLost(ctx, t, far, beforeWrites.ResourceVersion)
	link.Open()
	var got []string
	for range 5 {
		got = append(got, next())
	}
	want := []string{"DELETED again@away old", "ADDED again@away new", "MODIFIED changes@away new", "ADDED comes@away new",
		"DELETED goes@away old"}
	if !slices.Equal(got, want) {
		t.Errorf("the difference is %q, want %q", got, want)
	}
	for i, c := range []interface {
		Create(ctx context.Context, cm *corev1.ConfigMap, o metav1.CreateOptions) (*corev1.ConfigMap, error)
	}{far, near, far} {
		name := fmt.Sprintf("after-%d", i)
		if _, err := c.Create(ctx, configMapWith(name, "new"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // a new watch continues from the last event
			w.Stop()
			if w, err = client.Watch(ctx,
				metav1.ListOptions{LabelSelector: "mine", ResourceVersion: list.ResourceVersion}); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := next(), fmt.Sprintf("ADDED %s@%s new", name, []string{"away", "member1", "away"}[i]); got != want {
			t.Errorf("after the difference comes %s, want %s", got, want)
		}
	}
}

func writeWhileAway(ctx context.Context, t *testing.T, near, far typedcorev1.ConfigMapInterface) {
	t.Helper()
	for _, write := range []func() error{
		func() error {
			_, err := far.Update(ctx, configMapWith("changes", "new"), metav1.UpdateOptions{})
			return err
		},
		func() error { return far.Delete(ctx, "goes", metav1.DeleteOptions{}) },
		func() error { return far.Delete(ctx, "again", metav1.DeleteOptions{}) },
		func() error {
			_, err := far.Create(ctx, configMapWith("again", "new"), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := far.Create(ctx, configMapWith("comes", "new"), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := near.Create(ctx, configMapWith("meanwhile", "new"), metav1.CreateOptions{})
			return err
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
}

func expectHistoryLost(ctx context.Context, t *testing.T, client typedcorev1.ConfigMapInterface, version string) {
	t.Helper()
	if stale, err := client.Watch(ctx,
		metav1.ListOptions{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
		if err == nil {
			e := <-stale.ResultChan()
			stale.Stop()
			err = apierrors.FromObject(e.Object)
		}
		if !apierrors.IsResourceExpired(err) {
			t.Fatalf("the cluster has not forgotten what it did: %v", err)
		}
	}
}
