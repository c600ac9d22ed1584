package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestFleetVersionsInWrites: clients must keep the protection against lost updates, without needless conflicts:
//   - The version of a list is valid for a get of each object in it.
//   - The version of an event is valid for patches, applies and preconditions of its object.
//   - The response to a write names the object's cluster.
func TestFleetVersionsInWrites(t *testing.T) {
	fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	ns := e2e.NewNamespace(t, e2e.Members...)
	client := e2e.FleetClient(t, nil).CoreV1().ConfigMaps(ns)
	label := metav1.ListOptions{LabelSelector: "versions=yes"}
	var list *corev1.ConfigMapList
	waittest.Until(t, "first list", func() bool {
		var err error
		list, err = client.List(t.Context(), label)
		return err == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: label.LabelSelector,
		ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := func(typ watch.EventType, name string) string {
		t.Helper()
		e, ok := <-w.ResultChan()
		cm, isMap := e.Object.(*corev1.ConfigMap)
		if !ok || !isMap || e.Type != typ || cm.Name != name {
			t.Fatalf("want %s of %s: %+v", typ, name, e)
		}
		return cm.ResourceVersion
	}
	checkSourceOfWrites(t, client)
	for _, m := range e2e.Members {
		name := "version-" + m
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"versions": "yes"}}}
		own := e2e.DirectClient(t, m).CoreV1().ConfigMaps(ns)
		if _, err := own.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		version := event(watch.Added, name)
		if list, err = client.List(t.Context(), label); err != nil {
			t.Fatal(err)
		}
		if cm, err := client.Get(t.Context(), name, metav1.GetOptions{ResourceVersion: list.ResourceVersion}); err != nil ||
			cm.Annotations[e2e.SourceAnnotation] != m {
			t.Errorf("get with a list's version: %v, %v", cm, err)
		}
		for _, p := range []struct {
			kind types.PatchType
			body string
		}{
			{types.MergePatchType, `{"metadata":{"resourceVersion":%q},"data":{"a":"patched"}}`},
			{types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name +
				`","resourceVersion":%q},"data":{"b":"applied"}}`},
		} {
			cm, err := client.Patch(t.Context(), name, p.kind, fmt.Appendf(nil, p.body, version),
				metav1.PatchOptions{FieldManager: "test"})
			if err != nil || cm.Annotations[e2e.SourceAnnotation] != m {
				t.Fatalf("%s with an event's version: %v, %v", p.kind, cm, err)
			}
			if _, err := client.Patch(t.Context(), name, p.kind,
				fmt.Appendf(nil, strings.Replace(p.body, "ed\"", "ed again\"", 1), version),
				metav1.PatchOptions{FieldManager: "test"}); !apierrors.IsConflict(err) {
				t.Errorf("%s with an old one: %v", p.kind, err)
			}
			stale := version
			if err := client.Delete(t.Context(), name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &stale}}); !apierrors.IsConflict(err) {
				t.Errorf("a deletion with an old version: %v", err)
			}
			version = event(watch.Modified, name)
		}
		if err := client.Delete(t.Context(), name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}); err != nil {
			t.Errorf("a deletion with an event's version: %v", err)
		}
		event(watch.Deleted, name)
	}
}

func checkSourceOfWrites(t *testing.T, client typedcorev1.ConfigMapInterface) {
	t.Helper()
	for _, m := range e2e.Members {
		cm, err := client.Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written-" + m,
				Annotations: map[string]string{"clusterpass.io/cluster": m}}}, metav1.CreateOptions{})
		if err != nil || cm.Annotations[e2e.SourceAnnotation] != m {
			t.Fatalf("a creation in %s is answered with %v, %v", m, cm, err)
		}
		if cm, err = client.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil ||
			cm.Annotations[e2e.SourceAnnotation] != m {
			t.Errorf("an update in %s is answered with %v, %v", m, cm, err)
		}
	}
}

// TestFleetOfAllClusters: clusters/* must also support pages, tables, creation and requests for one object, which
// Karmada's lacks.
func TestFleetOfAllClusters(t *testing.T) {
	_, root := e2e.Caller(t)
	const all = "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy"
	k := e2e.Through(t, "member1")
	k.Server = root + all
	ns := e2e.CreatePods(t)
	var docs strings.Builder
	for _, m := range e2e.Members {
		for i := range 3 {
			fmt.Fprintf(&docs, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s-%d, namespace: %s, labels: {mine: "+
				"\"yes\"}, annotations: {clusterpass.io/cluster: %s}}}\n", m, i, ns, m)
		}
	}
	k.Apply(t, docs.String(), "--dry-run=server")
	if got := k.Must(t, "get", "configmaps", "-n", ns, "-l", "mine", "-o", "name"); got != "" {
		t.Errorf("a dry run made %s", got)
	}
	k.Apply(t, docs.String())
	for _, m := range e2e.Members {
		if got := strings.Fields(e2e.Direct(m).Must(t, "get", "configmaps", "-n", ns, "-l", "mine", "-o", "name")); len(
			got) != 3 || !strings.HasPrefix(got[0], "configmap/"+m) {
			t.Errorf("%s has %q", m, got)
		}
	}
	var names []string
	for cont := ""; ; {
		var list corev1.ConfigMapList
		if err := json.Unmarshal(
			[]byte(k.Must(t, "get", "--raw", all+"/api/v1/namespaces/"+ns+"/configmaps?labelSelector=mine&limit=2&continue="+
				cont)), &list); err != nil || len(list.Items) > 2 {
			t.Fatalf("a page of %d: %v", len(list.Items), err)
		}
		for _, cm := range list.Items {
			names = append(names, cm.Name)
		}
		if cont = list.Continue; cont == "" {
			break
		}
	}
	if want := []string{"member1-0", "member1-1", "member1-2", "member2-0", "member2-1", "member2-2"}; !slices.Equal(names,
		want) {
		t.Errorf("pages have %q, want %q", names, want)
	}
	lines := strings.Split(k.Must(t, "get", "configmaps", "-n", ns, "-l", "mine"), "\n")
	if got := strings.Fields(lines[0]); !slices.Equal(got, []string{"NAME", "CLUSTER", "DATA", "AGE"}) || len(lines) != 8 {
		t.Errorf("a table: %q", lines)
	}
	k.Must(t, "delete", "--raw", all+"/api/v1/namespaces/"+ns+"/configmaps?labelSelector=mine")
	for _, m := range e2e.Members {
		if got := e2e.Direct(m).Must(t, "get", "configmaps", "-n", ns, "-l", "mine", "-o", "name"); got != "" {
			t.Errorf("after the deletion %s has %q", m, got)
		}
	}
	checkPodsOfAllClusters(t, k, ns)
}

func checkPodsOfAllClusters(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	in := func(args ...string) []string { return append(args, "-n", ns) }
	for _, args := range [][]string{{"get", "pod", "same"}, {"logs", "same"}, {"delete", "pod", "same"},
		{"label", "pod", "same", "seen=yes"}} {
		if r := k.Run(t, in(args...)...); r.Code == 0 ||
			!strings.Contains(r.Stderr,
				`pods "same" is in 2 clusters: member1, member2; name one of them, as same@member1 or same@member2`) {
			t.Errorf("%v of one of several: %v", args, r)
		}
	}
	for name, m := range map[string]string{"on-member2": "member2", "same@member1": "member1"} {
		// A pod runs before it has written its log.
		waittest.Until(t, "log of "+name, func() bool {
			return k.Run(t, in("logs", name)...).Stdout == "I run in "+m+"\n"
		})
	}
	k.Must(t, in("patch", "pod", "same@member2", "-p", `{"metadata":{"labels":{"seen":"yes"}}}`)...)
	if got := k.Must(t, in("get", "pod", "same@member2", "-o",
		"jsonpath={.metadata.name} {.metadata.labels.seen}")...); got != "same@member2 yes" {
		t.Errorf("one by its cluster: %q", got)
	}
	k.Must(t, in("delete", "pod", "same@member2", "--timeout=4m")...)
	if got := e2e.Direct("member1").Must(t,
		in("get", "pod", "same", "-o",
			"jsonpath={.metadata.name} {.metadata.labels.seen}{.metadata.deletionTimestamp}")...); got != "same " {
		t.Errorf("member1's is %q", got)
	}
	if r := e2e.Direct("member2").Run(t, in("get", "pod", "same")...); !strings.Contains(r.Stderr, "(NotFound)") {
		t.Errorf("member2's, once it is deleted: %v", r)
	}
}

// TestFleetCreatedByCommands: kubectl derives labels and selectors from name@cluster. They must not contain the
// cluster.
func TestFleetCreatedByCommands(t *testing.T) {
	k := fleet(t, `{apiVersion: v1, kind: Pod}, {apiVersion: v1, kind: Service}, {apiVersion: apps/v1, kind: Deployment}`)
	ns, d := e2e.NewNamespace(t, "member2"), e2e.Direct("member2")
	for _, args := range [][]string{
		{"create", "deployment", "made@member2", "--image=one", "--replicas=0"},
		{"create", "service", "clusterip", "made@member2", "--tcp=80"},
		{"run", "made@member2", "--image=one",
			`--overrides={"spec":{"automountServiceAccountToken":false,"nodeName":"node1@member2"}}`},
	} {
		k.Must(t, append(args, "-n", ns)...)
	}
	for kind, fields := range map[string]string{
		"deployment": "{.metadata.labels.app} {.spec.selector.matchLabels.app} {.spec.template.metadata.labels.app}",
		"service":    "{.metadata.labels.app} {.spec.selector.app} {.metadata.name}",
		"pod":        "{.metadata.labels.run} {.spec.containers[0].name} {.metadata.name}",
	} {
		if got := d.Must(t, "get", kind, "made", "-n", ns, "-o", "jsonpath="+fields); got != "made made made" {
			t.Errorf("the %s is %q", kind, got)
		}
	}
	if got := d.Must(t, "get", "pod", "made", "-n", ns, "-o", "jsonpath={.spec.nodeName}"); got != "node1" {
		t.Errorf("the pod is of node %q", got)
	}
}
