package private_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestPrivateFleet: a watch of the fleet must not miss or repeat events after an agent restarts.
func TestPrivateFleet(t *testing.T) {
	ns := e2e.CreatePods(t)
	p := joinPrivate(t, "distant") // a second registration of member2
	e2e.CreateRegistry(t, "distant", "{clusterNames: [member1, distant]}", "{apiVersion: v1, kind: ConfigMap, namespace: "+
		ns+"}, {apiVersion: v1, kind: Pod, namespace: "+ns+"}")
	k := e2e.AtFleet(t, e2e.Through(t, "member1"))
	in := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	a := p.startReadyAgent()
	e2e.WaitForValue(t, "True ClusterReady", p.readyCondition)

	t.Run("lists", func(t *testing.T) {
		e2e.WaitForValue(t, "NAME CLUSTER, on-member2 distant, same distant, on-member1 member1, same member1",
			func() string {
				return rows(k.Run(t, in("get", "pods")...).Stdout)
			})
	})
	t.Run("writes", func(t *testing.T) { checkPrivateWrites(t, k, ns) })
	t.Run("streams", func(t *testing.T) {
		checkPrivatePods(t, k, ns)
	})

	client := e2e.FleetClient(t, nil).CoreV1().ConfigMaps(ns)
	options := metav1.ListOptions{LabelSelector: "watched"}
	list, err := client.List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	options.ResourceVersion = list.ResourceVersion
	ctx, cancel := context.WithTimeout(t.Context(), 4*e2e.Patience)
	defer cancel()
	w, err := client.Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Stop() }()
	next := func(want ...string) {
		t.Helper()
		options.ResourceVersion = expectEvents(t, w, want)
	}
	near, far := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(ns),
		e2e.DirectClient(t, "member2").CoreV1().ConfigMaps(ns)
	must := func(_ *corev1.ConfigMap, err error) { t.Helper(); failOnError(t, err) }
	must(near.Create(ctx, watchedConfigMap("near", "1"), metav1.CreateOptions{}))
	next("ADDED near@member1 1")
	must(far.Create(ctx, watchedConfigMap("far", "1"), metav1.CreateOptions{}))
	next("ADDED far@distant 1")
	must(near.Update(ctx, watchedConfigMap("near", "2"), metav1.UpdateOptions{}))
	next("MODIFIED near@member1 2")
	must(far.Update(ctx, watchedConfigMap("far", "2"), metav1.UpdateOptions{}))
	next("MODIFIED far@distant 2")
	must(nil, near.Delete(ctx, "near", metav1.DeleteOptions{}))
	next("DELETED near@member1 2")
	must(nil, far.Delete(ctx, "far", metav1.DeleteOptions{}))
	next("DELETED far@distant 2")

	a.kill()
	must(far.Create(ctx, watchedConfigMap("stays", "1"), metav1.CreateOptions{}))
	must(far.Update(ctx, watchedConfigMap("stays", "2"), metav1.UpdateOptions{}))
	must(far.Create(ctx, watchedConfigMap("goes", "1"), metav1.CreateOptions{}))
	must(nil, far.Delete(ctx, "goes", metav1.DeleteOptions{}))
	must(near.Create(ctx, watchedConfigMap("meanwhile", "1"), metav1.CreateOptions{}))
	next("ADDED meanwhile@member1 1")
	e2e.WaitForValue(t, "False unreachable", p.readyCondition)
	if r := k.Run(t, in("get", "configmaps", "-l", "watched")...); r.Code != 0 ||
		rows(r.Stdout) != "NAME CLUSTER, meanwhile member1" ||
		!strings.Contains(r.Stderr, `Warning: cluster "distant" is private, and none of its agents is connected`) {
		t.Errorf("a list without the private cluster: %v", r)
	}
	p.startReadyAgent()
	next("ADDED stays@distant 1", "MODIFIED stays@distant 2", "ADDED goes@distant 1", "DELETED goes@distant 1")
	e2e.WaitForValue(t, "True ClusterReady", p.readyCondition)
	must(near.Create(ctx, watchedConfigMap("after", "1"), metav1.CreateOptions{}))
	next("ADDED after@member1 1")
	w.Stop() // the next watch continues from its last event
	must(far.Create(ctx, watchedConfigMap("after-that", "1"), metav1.CreateOptions{}))
	again, err := client.Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	w = again
	next("ADDED after-that@distant 1")
}

func checkPrivatePods(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	in := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	e2e.WaitForValue(t, "I run in member2\n", func() string { return k.Must(t, in("logs", "same@distant")...) })
	k.Must(t, in("exec", "same@distant", "--", "sh", "-c", "echo by tunnel > said")...)
	if got := e2e.Direct("member2").Must(t, in("exec", "same", "--", "cat", "said")...); got != "by tunnel\n" {
		t.Errorf("exec: %q", got)
	}
}

func watchedConfigMap(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"watched": "yes"}},
		Data: map[string]string{"a": data}}
}

// expectEvents returns the resourceVersion of the last event.
func expectEvents(t *testing.T, w watch.Interface, want []string) (version string) {
	t.Helper()
	var got []string
	for range want {
		e := <-w.ResultChan()
		cm, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("after %q comes %+v", got, e)
		}
		version = cm.ResourceVersion
		got = append(got, fmt.Sprintf("%s %s@%s %s", e.Type, cm.Name, cm.Annotations[e2e.SourceAnnotation], cm.Data["a"]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
	return version
}

func failOnError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkPrivateWrites names the cluster of a write by annotation, by name@cluster and by the existing object.
func checkPrivateWrites(t *testing.T, k e2e.Kubectl, ns string) {
	in := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	d := e2e.Direct("member2")
	expectData := func(d e2e.Kubectl, want string) {
		t.Helper()
		if got := d.Must(t, in("get", "configmaps", "-l", "written", "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.data.a} {end}`)...); got != want {
			t.Errorf("%s has %q, want %q", d.Context, got, want)
		}
	}
	doc := func(name, cluster, data string) string {
		return fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {written: "+
			"\"yes\"}, annotations: {%s}}, data: {a: %s}}\n", name, ns, cluster, data)
	}
	const inDistant, inMember1 = "clusterpass.io/cluster: distant", "clusterpass.io/cluster: member1"
	k.WithInput(doc("created", inDistant, "one")).Must(t, "create", "-f", "-")
	for _, data := range []string{"one", "two"} {
		k.Apply(t, doc("applied", inDistant, data)+doc("named@distant", "", data)+doc("published", inMember1, data)+
			doc("both@distant", "", data)+doc("both@member1", "", data))
		expectData(d, fmt.Sprintf("applied=%s both=%s created=one named=%s ", data, data, data))
		expectData(e2e.Direct("member1"), fmt.Sprintf("both=%s published=%s ", data, data))
	}
	k.Must(t, in("patch", "configmap", "both@distant", "--type=merge", "-p", `{"data":{"a":"three"}}`)...)
	k.Must(t, in("patch", "configmap", "created@distant", "--type=merge", "-p", `{"data":{"a":"three"}}`)...)
	expectData(d, "applied=two both=three created=three named=two ")
	k.Must(t, in("delete", "configmap", "both@distant", "named@distant", "applied@distant", "--timeout=4m")...)
	expectData(d, "created=three ")
	expectData(e2e.Direct("member1"), "both=two published=two ")
}

func rows(printed string) string {
	var out []string
	for line := range strings.Lines(printed) {
		if fields := strings.Fields(line); len(fields) > 1 {
			out = append(out, strings.Join(fields[:2], " "))
		}
	}
	return strings.Join(out, ", ")
}
