package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpass/clusterpass/shared/cluster"
)

// members of the fleet in these tests.
var members = []string{"member1", "member2"}

const fleetPrefix = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"

// fleet returns kubectl at the fleet, as the owner, once a registry takes in kinds of all clusters, until the test ends.
func fleet(t *testing.T, selectors string) kubectl {
	t.Helper()
	registry(t, "fleet", "{}", selectors)
	return atFleet(t, through(t, "member1"))
}

// atFleet points a pass at the fleet.
func atFleet(t *testing.T, k kubectl) kubectl {
	t.Helper()
	_, root := caller(t)
	k.server = root + fleetPrefix
	return k
}

// qualified points a pass at the fleet in which every name is name@cluster.
func qualified(t *testing.T, k kubectl) kubectl {
	t.Helper()
	_, root := caller(t)
	k.server = root + "/fleet/@"
	return k
}

// registry makes a ResourceRegistry, until the test ends.
func registry(t *testing.T, name, target, selectors string) {
	t.Helper()
	doc := fmt.Sprintf("{apiVersion: search.karmada.io/v1alpha1, kind: ResourceRegistry, metadata: {name: %s}, spec: {targetCluster: %s, resourceSelectors: [%s]}}", name, target, selectors)
	if out, err := cli(t, doc, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, doc, "delete", "-f", "-") })
	known()
}

// known waits until a registry that was written is in force: bridge and functions may know the registries of before for as long, each for
// itself, so that asking one says nothing of another; and kubectl asks for what there is but once.
func known() { time.Sleep(2 * cluster.Local.Object) }

// apply applies documents, and must be able to.
func (k kubectl) apply(t *testing.T, docs string, args ...string) {
	t.Helper()
	k.stdin = strings.NewReader("---\n" + docs) // else kubectl takes a document in braces for JSON
	k.must(t, append([]string{"apply", "-f", "-"}, args...)...)
}

// pods makes a namespace with pods in each cluster: one of the same name, and one of its own, named after the cluster.
func pods(t *testing.T, namespace string) {
	t.Helper()
	for _, m := range members {
		d := direct(m)
		newNamespace(t, d, namespace)
		t.Cleanup(func() { d.run(t, "delete", "namespace", namespace, "--wait=false") })
		var docs strings.Builder
		for _, name := range []string{"same", "on-" + m} {
			fmt.Fprintf(&docs, "---\n{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s}}, spec: {automountServiceAccountToken: false, terminationGracePeriodSeconds: 0, "+
				"containers: [{name: c, image: busybox, command: [/bin/sh, -c, 'echo I run in %s; exec sleep 1000']}]}}\n", name, namespace, name, m)
		}
		d.apply(t, docs.String())
	}
	for _, m := range members {
		direct(m).must(t, "wait", "-n", namespace, "--for=condition=Ready", "pod", "--all", "--timeout=4m")
	}
}

// TestFleetSeeds is Karmada's page on global resources: its registry and its commands, for pods and nodes of two clusters, and all that
// its questions and answers say cannot be.
func TestFleetSeeds(t *testing.T) {
	const page = `
apiVersion: search.karmada.io/v1alpha1
kind: ResourceRegistry
metadata:
  name: proxy-sample
spec:
  targetCluster:
    clusterNames:
  resourceSelectors:
    - apiVersion: v1
      kind: Pod
    - apiVersion: v1
      kind: Node
`
	pods(t, "page")
	k := atFleet(t, through(t, "member1"))
	if r := k.run(t, "get", "--raw", fleetPrefix+"/api/v1/pods"); r.code == 0 || !strings.Contains(r.stderr, "no ResourceRegistry") {
		t.Errorf("without a registry: %v", r)
	}
	if r := k.run(t, "get", "pods", "-n", "page"); r.code == 0 || !strings.Contains(r.stderr, "Warning: no kind is global: no ResourceRegistry") {
		t.Errorf("without a registry, kubectl does not say what is missing: %v", r)
	}
	if out, err := cli(t, page, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, page, "delete", "-f", "-") })
	known()

	// Real columns, and where each object is.
	lines := strings.Split(strings.TrimSpace(k.must(t, "get", "pods", "-n", "page")), "\n")
	if got := strings.Fields(lines[0]); !slices.Equal(got, []string{"NAME", "CLUSTER", "READY", "STATUS", "RESTARTS", "AGE"}) {
		t.Errorf("columns %q", got)
	}
	var rows []string
	for _, line := range lines[1:] {
		rows = append(rows, strings.Join(strings.Fields(line)[:4], " "))
	}
	if want := []string{"on-member1 member1 1/1 Running", "same member1 1/1 Running", "on-member2 member2 1/1 Running", "same member2 1/1 Running"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	if got := k.must(t, "get", "nodes", "-o", "name"); got != "node/member1-node\nnode/member2-node\n" {
		t.Errorf("nodes %q", got)
	}
	// Label selectors, and every field selector.
	for selector, want := range map[string]string{
		"-l=app=same": "same same ",
		"--field-selector=spec.nodeName=member2-node": "on-member2 same ",
		"--field-selector=status.phase!=Running":      "",
		"--field-selector=metadata.name=on-member1":   "on-member1 ",
	} {
		if got := k.must(t, "get", "pods", "-n", "page", selector, "-o", `jsonpath={range .items[*]}{.metadata.name}{" "}{end}`); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	// Also of what the clusters have in memory, as Karmada's cache does not; that may be of a moment before.
	for selector, want := range map[string]string{"spec.nodeName%3Dmember2-node": "on-member2 same", "status.phase%3DRunning": "on-member1 on-member2 same same", "status.phase%3DPending": ""} {
		eventually(t, func() bool {
			var list corev1.PodList
			raw := k.must(t, "get", "--raw", fleetPrefix+"/api/v1/namespaces/page/pods?resourceVersion=0&fieldSelector="+selector)
			if err := json.Unmarshal([]byte(raw), &list); err != nil {
				t.Fatalf("%s: %v", selector, err)
			}
			var names []string
			for _, p := range list.Items {
				names = append(names, p.Name)
			}
			slices.Sort(names)
			return strings.Join(names, " ") == want
		})
	}
	if got := k.must(t, "get", "pods", "-n", "page", "-o", `jsonpath={range .items[*]}{.metadata.annotations.resource\.karmada\.io/cached-from-cluster}{" "}{end}`); got != "member1 member1 member2 member2 " {
		t.Errorf("sources %q", got)
	}
	// Subresources.
	if got := k.must(t, "logs", "on-member2", "-n", "page"); got != "I run in member2\n" {
		t.Errorf("logs %q", got)
	}
	if got := k.must(t, "get", "--raw", fleetPrefix+"/api/v1/namespaces/page/pods/on-member1/log"); got != "I run in member1\n" {
		t.Errorf("raw logs %q", got)
	}
	// As the page has it: kubectl puts the server's path, which is the same, before this one.
	if got := k.must(t, "get", "--server", k.server, "--raw", fleetPrefix+"/api/v1/namespaces/page/pods/on-member2/log"); got != "I run in member2\n" {
		t.Errorf("raw logs below the server's path: %q", got)
	}
	if got := k.must(t, "exec", "on-member2", "-n", "page", "--", "echo", "a", "b"); got != "a b\n" {
		t.Errorf("exec %q", got)
	}
	// One of several of the same name.
	if r := k.run(t, "get", "pod", "same", "-n", "page"); r.code == 0 || !strings.Contains(r.stderr, `pods "same" is in 2 clusters: member1, member2; name one of them, as same@member1 or same@member2`) {
		t.Errorf("get of one of several: %v", r)
	}
	if got := k.must(t, "get", "pod", "same@member2", "-n", "page", "--no-headers"); !strings.HasPrefix(got, "same@member2") || strings.Fields(got)[1] != "member2" {
		t.Errorf("get by cluster %q", got)
	}
	if got := k.must(t, "logs", "same@member1", "-n", "page"); got != "I run in member1\n" {
		t.Errorf("logs by cluster %q", got)
	}
	if got := k.must(t, "exec", "same@member2", "-n", "page", "--", "cat", "/dev/null"); got != "" {
		t.Errorf("exec by cluster %q", got)
	}
	k.must(t, "label", "pod", "same@member2", "-n", "page", "seen=yes")
	k.must(t, "annotate", "pod", "on-member1", "-n", "page", "seen=yes")
	if got := direct("member2").must(t, "get", "pod", "-n", "page", "-l", "seen=yes", "-o", "name"); got != "pod/same\n" {
		t.Errorf("labelled in member2: %q", got)
	}
	if got := direct("member1").must(t, "get", "pod", "-n", "page", "-l", "seen=yes", "-o", "name"); got != "" {
		t.Errorf("labelled in member1: %q", got)
	}
	// What is written back has no trace of the fleet.
	object := k.must(t, "get", "pod", "same@member2", "-n", "page", "-o", "json")
	back := k
	back.stdin = strings.NewReader(strings.Replace(object, `"seen": "yes"`, `"seen": "again"`, 1))
	back.must(t, "replace", "-f", "-")
	got := direct("member2").must(t, "get", "pod", "same", "-n", "page", "-o", "json")
	if !strings.Contains(got, `"seen": "again"`) || strings.Contains(got, "cached-from-cluster") || strings.Contains(got, "same@member2") {
		t.Errorf("replaced: %s", got)
	}
	k.must(t, "delete", "pod", "same@member2", "-n", "page", "--wait=false")
	eventually(t, func() bool { return direct("member2").run(t, "get", "pod", "same", "-n", "page").code != 0 })
	if r := k.run(t, "get", "pod", "same", "-n", "page"); r.code != 0 {
		t.Errorf("get of what is there once: %v", r)
	}
}

// TestFleetCreate holds: what is made is made where it says, and refused where nothing says.
func TestFleetCreate(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	doc := func(name, annotations string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %q, namespace: default, annotations: {%s}}, data: {a: b}}", name, annotations)
	}
	apply := func(doc string, args ...string) result {
		t.Helper()
		k := k
		k.stdin = strings.NewReader("---\n" + doc)
		return k.run(t, append([]string{"apply", "-f", "-"}, args...)...)
	}
	for _, m := range members {
		t.Cleanup(func() {
			direct(m).run(t, "delete", "configmap", "here", "there", "both", "nowhere", "ssa", "-n", "default", "--ignore-not-found")
		})
	}
	if r := apply(doc("nowhere", "")); r.code == 0 || !strings.Contains(r.stderr, "clusterpass.io/cluster") || !strings.Contains(r.stderr, "member1, member2") {
		t.Errorf("without a place: %v", r)
	}
	many := strings.Join([]string{doc("here", "clusterpass.io/cluster: member1"), doc("there", "clusterpass.io/cluster: member2"), doc("both@member1", ""), doc("both@member2", "")}, "\n---\n")
	if r := apply(many); r.code != 0 || strings.Count(r.stdout, "created") != 4 {
		t.Fatalf("apply: %v", r)
	}
	if r := apply(many); r.code != 0 || strings.Count(r.stdout, "unchanged") != 4 {
		t.Errorf("apply again: %v", r)
	}
	if r := apply(strings.ReplaceAll(many, "a: b", "a: c")); r.code != 0 || strings.Count(r.stdout, "configured") != 4 {
		t.Errorf("apply of a change: %v", r)
	}
	if r := apply(doc("ssa@member2", ""), "--server-side"); r.code != 0 {
		t.Errorf("server-side apply: %v", r)
	}
	if r := apply(doc("ssa2", ""), "--server-side"); r.code == 0 || !strings.Contains(r.stderr, "clusterpass.io/cluster") {
		t.Errorf("server-side apply without a place: %v", r)
	}
	for m, want := range map[string]string{"member1": "both here ", "member2": "both ssa there "} {
		got := direct(m).must(t, "get", "configmap", "-n", "default", "-o", `jsonpath={range .items[?(@.data.a)]}{.metadata.name}{" "}{end}`)
		if got != want {
			t.Errorf("%s has %q, want %q", m, got, want)
		}
	}
	if r := apply(doc("there", ""), "--dry-run=server"); r.code != 0 {
		t.Errorf("dry run: %v", r)
	}
	k.must(t, "delete", "configmap", "here", "there", "both@member1", "both@member2", "ssa@member2", "-n", "default", "--wait=false")
	for _, m := range members {
		if got := direct(m).must(t, "get", "configmap", "-n", "default", "-o", `jsonpath={.items[?(@.data.a)].metadata.name}`); got != "" {
			t.Errorf("%s still has %q", m, got)
		}
	}
}

// TestFleetPages holds: pages are exactly the union, with any limit, for kinds whose lists have their metadata first and those that have
// it last, as objects and as tables.
func TestFleetPages(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}, {apiVersion: example.com/v1, kind: Widget}")
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced,
names: {kind: Widget, plural: widgets, singular: widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
	want := map[string][]string{}
	for i, m := range members {
		d := direct(m)
		newNamespace(t, d, "pages")
		t.Cleanup(func() {
			d.run(t, "delete", "namespace", "pages", "--wait=false")
			d.run(t, "delete", "crd", "widgets.example.com", "--wait=false")
		})
		d.apply(t, crd)
		d.must(t, "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=4m")
		var docs strings.Builder
		for n := range 7 + 4*i {
			name := fmt.Sprintf("o-%d-%s", n, m)
			fmt.Fprintf(&docs, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: pages}}\n---\n{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s, namespace: pages}}\n", name, name)
			want["widgets"] = append(want["widgets"], name)
		}
		eventually(t, func() bool { return d.run(t, "get", "widgets", "-n", "pages").code == 0 })
		d.apply(t, docs.String())
		want["configmaps"] = append(want["configmaps"], strings.Fields(d.must(t, "get", "configmaps", "-n", "pages", "-o", `jsonpath={.items[*].metadata.name}`))...)
	}
	slices.Sort(want["widgets"])
	slices.Sort(want["configmaps"])
	for resource, path := range map[string]string{"configmaps": "/api/v1/namespaces/pages/configmaps", "widgets": "/apis/example.com/v1/namespaces/pages/widgets"} {
		versions := map[string]bool{}
		for _, limit := range []int{1, 2, 3, 7, 8, 500} {
			var got []string
			for cont, pages := "", 0; ; pages++ {
				var list struct {
					Metadata struct{ Continue, ResourceVersion string }
					Items    []struct{ Metadata struct{ Name string } }
				}
				raw := k.must(t, "get", "--raw", fmt.Sprintf("%s%s?limit=%d&continue=%s", fleetPrefix, path, limit, cont))
				if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list.Items) > limit {
					t.Fatalf("%s, limit %d: %v\n%s", resource, limit, err, raw)
				}
				for _, o := range list.Items {
					got = append(got, o.Metadata.Name)
				}
				versions[fmt.Sprint(limit, list.Metadata.ResourceVersion)] = true
				if cont = list.Metadata.Continue; cont == "" {
					break
				} else if pages > 50 {
					t.Fatalf("%s, limit %d: the list has no end: %q", resource, limit, got)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want[resource]) {
				t.Errorf("%s, limit %d: %q\nwant %q", resource, limit, got, want[resource])
			}
		}
		if len(versions) != 6 {
			t.Errorf("%s: the pages of 6 lists have %d versions, want one each", resource, len(versions))
		}
		rows := strings.Split(strings.TrimSpace(k.must(t, "get", resource, "-n", "pages", "--chunk-size=3", "--no-headers")), "\n")
		if len(rows) != len(want[resource]) {
			t.Errorf("%s: a table in pages has %d rows, want %d", resource, len(rows), len(want[resource]))
		}
	}
	for token, want := range map[string]string{"abc": "(BadRequest)", "eyJ2IjoxLCJydiI6IjEwNDEyMDAwNzAwMDAwMDAwMDEwMCIsIm4iOjd9": "(Expired)"} {
		if r := k.run(t, "get", "--raw", fleetPrefix+"/api/v1/namespaces/pages/configmaps?limit=2&continue="+token); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("token %s: %v, want %s", token, r, want)
		}
	}
}

// TestFleetDiscovery holds: what is global is what kubectl sees, each kind once, with its schema; of a kind that one cluster alone has, too.
func TestFleetDiscovery(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: Pod}, {apiVersion: example.org/v1, kind: Gateway}")
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gateways.example.org}, spec: {group: example.org, scope: Cluster,
names: {kind: Gateway, plural: gateways, singular: gateway}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {color: {type: string, description: What it looks like.}}}}}]}}`
	d := direct("member2")
	d.apply(t, crd)
	t.Cleanup(func() { d.run(t, "delete", "crd", "gateways.example.org", "--wait=false") })
	d.must(t, "wait", "--for=condition=Established", "crd/gateways.example.org", "--timeout=4m")
	eventually(t, func() bool { return d.run(t, "get", "gateways").code == 0 })
	d.apply(t, "{apiVersion: example.org/v1, kind: Gateway, metadata: {name: one}, color: red}")
	// Each process of the function keeps what there is for half a minute, and kubectl asks two of them at once.
	eventually(t, func() bool { return k.run(t, "api-resources", "-o", "name").stdout == "pods\ngateways.example.org\n" })
	eventually(t, func() bool { return k.run(t, "api-versions").stdout == "example.org/v1\nv1\n" })
	if got := k.must(t, "get", "--raw", fleetPrefix+"/api/v1"); !strings.Contains(got, `"name":"pods/log"`) || strings.Contains(got, `"secrets"`) {
		t.Errorf("the older form: %s", got)
	}
	eventually(t, func() bool {
		return strings.Contains(k.run(t, "explain", "gateway.color").stdout, "What it looks like.")
	})
	// The older form of the schemas, as older clients read it: in protobuf, and in JSON.
	var times map[string]int
	var swagger string
	eventually(t, func() bool {
		doc, err := fleetClient(t, nil).Discovery().OpenAPISchema()
		if err != nil {
			t.Log(err) // on a busy machine it is late
			return false
		}
		times = map[string]int{}
		for _, d := range doc.GetDefinitions().GetAdditionalProperties() {
			times[d.GetName()]++
		}
		swagger = k.must(t, "get", "--raw", fleetPrefix+"/openapi/v2")
		return times["org.example.v1.Gateway"] > 0 && strings.Contains(swagger, `"org.example.v1.Gateway"`)
	})
	for _, name := range []string{"io.k8s.api.core.v1.Pod", "org.example.v1.Gateway"} {
		if times[name] != 1 || strings.Count(swagger, strconv.Quote(name)+":{") != 1 {
			t.Errorf("OpenAPI v2 has %s %d times in protobuf, %d in JSON", name, times[name], strings.Count(swagger, strconv.Quote(name)+":{"))
		}
	}
	if got := k.must(t, "explain", "pod.spec.containers"); !strings.Contains(got, "List of containers belonging to the pod") {
		t.Errorf("explain: %s", got)
	}
	eventually(t, func() bool {
		r := k.run(t, "get", "gateways")
		return r.code == 0 && strings.Contains(r.stdout, "member2") && strings.Contains(r.stderr, `Warning: cluster "member1"`)
	})
	if got := k.must(t, "version"); !strings.Contains(got, "Server Version: v1.") {
		t.Errorf("version: %s", got)
	}
}

// TestFleetDrain holds: a node's pods are found by its name@cluster, and they alone.
func TestFleetDrain(t *testing.T) {
	pods(t, "drained")
	k := fleet(t, `{apiVersion: v1, kind: Pod}, {apiVersion: v1, kind: Node}, {apiVersion: apps/v1, kind: "*"}`)
	node := direct("member1").must(t, "get", "pod", "same", "-n", "drained", "-o", "jsonpath={.spec.nodeName}")
	for _, pod := range []string{"same", "on-member1"} {
		r := k.run(t, "drain", node+"@member1", "--dry-run=server", "--force", "--pod-selector=app in (same, on-member1, on-member2)")
		if r.code != 0 || !strings.Contains(r.stdout+r.stderr, "drained/"+pod+"@member1") || strings.Contains(r.stdout+r.stderr, "member2") {
			t.Errorf("drain: %v", r)
		}
		if got := k.must(t, "describe", "node", node+"@member1"); !strings.Contains(got, pod+"@member1") || strings.Contains(got, "on-member2") {
			t.Errorf("describe says %s", got)
		}
	}
	r := k.run(t, "get", "pods", "-A", "--field-selector", "status.phase=Running@member1")
	if r.code == 0 || !strings.Contains(r.stderr, "compares no name") {
		t.Errorf("a selector that names a cluster where no name is: %v", r)
	}
}
