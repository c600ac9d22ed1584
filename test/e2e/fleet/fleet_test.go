package fleet_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// fleet makes a ResourceRegistry for all clusters, until the test ends. It returns kubectl at the fleet as the owner.
func fleet(t *testing.T, selectors string) e2e.Kubectl {
	t.Helper()
	e2e.CreateRegistry(t, "fleet", "{}", selectors)
	return e2e.AtFleet(t, e2e.Through(t, "member1"))
}

// qualified returns k with /fleet/@ as its server, where every name is name@cluster.
func qualified(t *testing.T, k e2e.Kubectl) e2e.Kubectl {
	t.Helper()
	_, root := e2e.Caller(t)
	k.Server = root + "/fleet/@"
	return k
}

// TestFleetRunsKarmadasExample: users of Karmada could not move to the gateway.
func TestFleetRunsKarmadasExample(t *testing.T) {
	ns := e2e.CreatePods(t)
	k := e2e.AtFleet(t, e2e.Through(t, "member1"))
	if r := k.Run(t, "get", "--raw", e2e.FleetPrefix+"/api/v1/pods"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "no ResourceRegistry") {
		t.Errorf("without a registry: %v", r)
	}
	if r := k.Run(t, "get", "pods", "-n", ns); r.Code == 0 ||
		!strings.Contains(r.Stderr, "Warning: no kind is global: no ResourceRegistry") {
		t.Errorf("without a registry, kubectl does not say what is missing: %v", r)
	}
	if out, err := e2e.CLI(t, e2e.SeedRegistry, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, e2e.SeedRegistry, "delete", "-f", "-") })
	e2e.WaitForRegistries()
	checkLists(t, k, ns)
	checkSubresources(t, k, ns)
	checkPodWrites(t, k, ns)
}

func checkLists(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(k.Must(t, "get", "pods", "-n", ns)), "\n")
	if got := strings.Fields(lines[0]); !slices.Equal(got, []string{"NAME", "CLUSTER", "READY", "STATUS", "RESTARTS",
		"AGE"}) {
		t.Errorf("columns %q", got)
	}
	var rows []string
	for _, line := range lines[1:] {
		rows = append(rows, strings.Join(strings.Fields(line)[:4], " "))
	}
	if want := []string{"on-member1 member1 1/1 Running", "same member1 1/1 Running", "on-member2 member2 1/1 Running",
		"same member2 1/1 Running"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	if got := k.Must(t, "get", "nodes", "-o", "name"); got != "node/member1-node\nnode/member2-node\n" {
		t.Errorf("nodes %q", got)
	}
	for selector, want := range map[string]string{
		"-l=app=same": "same same ",
		"--field-selector=spec.nodeName=member2-node": "on-member2 same ",
		"--field-selector=status.phase!=Running":      "",
		"--field-selector=metadata.name=on-member1":   "on-member1 ",
	} {
		if got := k.Must(t, "get", "pods", "-n", ns, selector, "-o",
			`jsonpath={range .items[*]}{.metadata.name}{" "}{end}`); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	// A read from the clusters' watch caches may be out of date.
	for selector, want := range map[string]string{"spec.nodeName%3Dmember2-node": "on-member2 same",
		"status.phase%3DRunning": "on-member1 on-member2 same same", "status.phase%3DPending": ""} {
		waittest.Until(t, "list by "+selector, func() bool {
			var list corev1.PodList
			raw := k.Must(t, "get", "--raw", e2e.FleetPrefix+"/api/v1/namespaces/"+ns+"/pods?resourceVersion=0&fieldSelector="+
				selector)
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
	if got := k.Must(t, "get", "pods", "-n", ns, "-o",
		`jsonpath={range .items[*]}{.metadata.annotations.resource\.karmada\.io/cached-from-cluster}{" "}{end}`); got !=
		"member1 member1 member2 member2 " {
		t.Errorf("sources %q", got)
	}
}

func checkSubresources(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	if got := k.Must(t, "logs", "on-member2", "-n", ns); got != "I run in member2\n" {
		t.Errorf("logs %q", got)
	}
	if got := k.Must(t, "get", "--raw", e2e.FleetPrefix+"/api/v1/namespaces/"+ns+
		"/pods/on-member1/log"); got != "I run in member1\n" {
		t.Errorf("raw logs %q", got)
	}
	// The page's command repeats the server's path in the argument of --raw.
	if got := k.Must(t, "get", "--server", k.Server, "--raw", e2e.FleetPrefix+"/api/v1/namespaces/"+ns+
		"/pods/on-member2/log"); got != "I run in member2\n" {
		t.Errorf("raw logs below the server's path: %q", got)
	}
	if got := k.Must(t, "exec", "on-member2", "-n", ns, "--", "echo", "a", "b"); got != "a b\n" {
		t.Errorf("exec %q", got)
	}
	if r := k.Run(t, "get", "pod", "same", "-n", ns); r.Code == 0 ||
		!strings.Contains(r.Stderr,
			`pods "same" is in 2 clusters: member1, member2; name one of them, as same@member1 or same@member2`) {
		t.Errorf("get of one of several: %v", r)
	}
	if got := k.Must(t, "get", "pod", "same@member2", "-n", ns, "--no-headers"); !strings.HasPrefix(got, "same@member2") ||
		strings.Fields(got)[1] != "member2" {
		t.Errorf("get by cluster %q", got)
	}
	if got := k.Must(t, "logs", "same@member1", "-n", ns); got != "I run in member1\n" {
		t.Errorf("logs by cluster %q", got)
	}
	if got := k.Must(t, "exec", "same@member2", "-n", ns, "--", "cat", "/dev/null"); got != "" {
		t.Errorf("exec by cluster %q", got)
	}
}

func checkPodWrites(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	k.Must(t, "label", "pod", "same@member2", "-n", ns, "seen=yes")
	k.Must(t, "annotate", "pod", "on-member1@member1", "-n", ns, "seen=yes")
	if got := e2e.Direct("member2").Must(t, "get", "pod", "-n", ns, "-l", "seen=yes", "-o", "name"); got != "pod/same\n" {
		t.Errorf("labelled in member2: %q", got)
	}
	if got := e2e.Direct("member1").Must(t, "get", "pod", "-n", ns, "-l", "seen=yes", "-o", "name"); got != "" {
		t.Errorf("labelled in member1: %q", got)
	}
	// The cluster's name in the fleet's response is not stored.
	object := k.Must(t, "get", "pod", "same@member2", "-n", ns, "-o", "json")
	back := k
	back.Stdin = strings.NewReader(strings.Replace(object, `"seen": "yes"`, `"seen": "again"`, 1))
	back.Must(t, "replace", "-f", "-")
	got := e2e.Direct("member2").Must(t, "get", "pod", "same", "-n", ns, "-o", "json")
	if !strings.Contains(got, `"seen": "again"`) || strings.Contains(got, "cached-from-cluster") ||
		strings.Contains(got, "same@member2") {
		t.Errorf("replaced: %s", got)
	}
	k.Must(t, "delete", "pod", "same@member2", "-n", ns, "--wait=false")
	waittest.Until(t, "pod is deleted in member2", func() bool {
		return e2e.Direct("member2").Run(t, "get", "pod", "same", "-n", ns).Code != 0
	})
	if r := k.Run(t, "get", "pod", "same", "-n", ns); r.Code != 0 {
		t.Errorf("get of what is there once: %v", r)
	}
}

// TestFleetCreate: an object must be created only in the cluster that it names.
func TestFleetCreate(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	ns := e2e.NewNamespace(t, e2e.Members...)
	doc := func(name, annotations string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %q, namespace: %s, annotations: {%s}}, "+
			"data: {a: b}}", name, ns, annotations)
	}
	apply := func(doc string, args ...string) e2e.Result {
		t.Helper()
		k := k
		k.Stdin = strings.NewReader("---\n" + doc)
		return k.Run(t, append([]string{"apply", "-f", "-"}, args...)...)
	}
	if r := apply(doc("nowhere", "")); r.Code == 0 || !strings.Contains(r.Stderr, "clusterpass.io/cluster") ||
		!strings.Contains(r.Stderr, "member1, member2") {
		t.Errorf("without a place: %v", r)
	}
	many := strings.Join([]string{doc("here", "clusterpass.io/cluster: member1"),
		doc("there", "clusterpass.io/cluster: member2"), doc("both@member1", ""), doc("both@member2", "")}, "\n---\n")
	if r := apply(many); r.Code != 0 || strings.Count(r.Stdout, "created") != 4 {
		t.Fatalf("apply: %v", r)
	}
	if r := apply(many); r.Code != 0 || strings.Count(r.Stdout, "unchanged") != 4 {
		t.Errorf("apply again: %v", r)
	}
	if r := apply(strings.ReplaceAll(many, "a: b", "a: c")); r.Code != 0 || strings.Count(r.Stdout, "configured") != 4 {
		t.Errorf("apply of a change: %v", r)
	}
	if r := apply(doc("ssa@member2", ""), "--server-side"); r.Code != 0 {
		t.Errorf("server-side apply: %v", r)
	}
	if r := apply(doc("ssa2", ""), "--server-side"); r.Code == 0 || !strings.Contains(r.Stderr, "clusterpass.io/cluster") {
		t.Errorf("server-side apply without a place: %v", r)
	}
	for m, want := range map[string]string{"member1": "both here ", "member2": "both ssa there "} {
		got := e2e.Direct(m).Must(t, "get", "configmap", "-n", ns, "-o",
			`jsonpath={range .items[?(@.data.a)]}{.metadata.name}{" "}{end}`)
		if got != want {
			t.Errorf("%s has %q, want %q", m, got, want)
		}
	}
	if r := apply(doc("there", ""), "--dry-run=server"); r.Code != 0 {
		t.Errorf("dry run: %v", r)
	}
	k.Must(t, "delete", "configmap", "here@member1", "there@member2", "both@member1", "both@member2", "ssa@member2", "-n",
		ns, "--wait=false")
	for _, m := range e2e.Members {
		if got := e2e.Direct(m).Must(t, "get", "configmap", "-n", ns, "-o",
			`jsonpath={.items[?(@.data.a)].metadata.name}`); got != "" {
			t.Errorf("%s still has %q", m, got)
		}
	}
}

// TestFleetPages: kubectl must not omit or repeat objects. Some API servers write a list's metadata after its items.
func TestFleetPages(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}, {apiVersion: example.com/v1, kind: Widget}")
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced,
names: {kind: Widget, plural: widgets, singular: widget}, versions: [{name: v1, served: true, storage: true,
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
	ns := e2e.NewNamespace(t, e2e.Members...)
	want := map[string][]string{}
	for i, m := range e2e.Members {
		d := e2e.Direct(m)
		t.Cleanup(func() { d.Run(t, "delete", "crd", "widgets.example.com") })
		d.Apply(t, crd)
		d.Must(t, "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=4m")
		var docs strings.Builder
		for n := range 7 + 4*i {
			name := fmt.Sprintf("o-%d-%s", n, m)
			fmt.Fprintf(&docs, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: "+
				"%s}}\n---\n{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s, namespace: %s}}\n", name, ns, name, ns)
			want["widgets"] = append(want["widgets"], name)
		}
		waittest.Until(t, m+" serves widgets", func() bool { return d.Run(t, "get", "widgets", "-n", ns).Code == 0 })
		d.Apply(t, docs.String())
		want["configmaps"] = append(want["configmaps"],
			strings.Fields(d.Must(t, "get", "configmaps", "-n", ns, "-o", `jsonpath={.items[*].metadata.name}`))...)
	}
	slices.Sort(want["widgets"])
	slices.Sort(want["configmaps"])
	for resource, path := range map[string]string{"configmaps": "/api/v1/namespaces/" + ns + "/configmaps",
		"widgets": "/apis/example.com/v1/namespaces/" + ns + "/widgets"} {
		versions := map[string]bool{}
		for _, limit := range []int{1, 2, 3, 7, 8, 500} {
			var got []string
			for cont, pages := "", 0; ; pages++ {
				var list struct {
					Metadata struct {
						Continue, ResourceVersion string
						RemainingItemCount        int
					}
					Items []struct{ Metadata struct{ Name string } }
				}
				raw := k.Must(t, "get", "--raw", fmt.Sprintf("%s%s?limit=%d&continue=%s", e2e.FleetPrefix, path, limit, cont))
				if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list.Items) > limit {
					t.Fatalf("%s, limit %d: %v\n%s", resource, limit, err, raw)
				}
				for _, o := range list.Items {
					got = append(got, o.Metadata.Name)
				}
				if n := len(want[resource]) - len(got); list.Metadata.RemainingItemCount != n {
					t.Errorf("%s, limit %d, page %d: %d are reported to remain, and %d do", resource, limit, pages,
						list.Metadata.RemainingItemCount, n)
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
		rows := strings.Split(strings.TrimSpace(k.Must(t, "get", resource, "-n", ns, "--chunk-size=3", "--no-headers")), "\n")
		if len(rows) != len(want[resource]) {
			t.Errorf("%s: a table in pages has %d rows, want %d", resource, len(rows), len(want[resource]))
		}
	}
	for token, want := range map[string]string{"abc": "(BadRequest)",
		"eyJ2IjoxLCJydiI6IjEwNDEyMDAwNzAwMDAwMDAwMDEwMCIsIm4iOjd9": "(Expired)"} {
		if r := k.Run(t, "get", "--raw", e2e.FleetPrefix+"/api/v1/namespaces/"+ns+"/configmaps?limit=2&continue="+
			token); r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("token %s: %v, want %s", token, r, want)
		}
	}
}

// reviewNames are the reviews of oneself, which the fleet answers without a registry.
const reviewNames = "selfsubjectreviews.authentication.k8s.io\nselfsubjectaccessreviews.authorization.k8s.io\n" +
	"selfsubjectrulesreviews.authorization.k8s.io\n"

// TestFleetDiscovery: kubectl must know each global kind once, also one that only one cluster has.
func TestFleetDiscovery(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: Pod}, {apiVersion: example.org/v1, kind: Gateway}")
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: gateways.example.org}, spec: {group: example.org, scope: Cluster,
names: {kind: Gateway, plural: gateways, singular: gateway}, versions: [{name: v1, served: true, storage: true,
schema: {openAPIV3Schema: {type: object, properties: {color: {type: string, description: What it looks like.}}}}}]}}`
	d := e2e.Direct("member2")
	d.Apply(t, crd)
	t.Cleanup(func() { d.Run(t, "delete", "crd", "gateways.example.org") })
	d.Must(t, "wait", "--for=condition=Established", "crd/gateways.example.org", "--timeout=4m")
	waittest.Until(t, "member2 serves gateways", func() bool { return d.Run(t, "get", "gateways").Code == 0 })
	d.Apply(t, "{apiVersion: example.org/v1, kind: Gateway, metadata: {name: one}, color: red}")
	// Each process of the function caches discovery for half a minute. kubectl calls two processes at once.
	waittest.Until(t, "api-resources has both kinds", func() bool {
		return k.Run(t, "api-resources", "-o", "name").Stdout == "pods\n"+reviewNames+"gateways.example.org\n"
	})
	waittest.Until(t, "api-versions has both groups", func() bool {
		return k.Run(t, "api-versions").Stdout == "authentication.k8s.io/v1\nauthorization.k8s.io/v1\nexample.org/v1\nv1\n"
	})
	if got := k.Must(t, "get", "--raw", e2e.FleetPrefix+"/api/v1"); !strings.Contains(got, `"name":"pods/log"`) ||
		strings.Contains(got, `"secrets"`) {
		t.Errorf("the older form: %s", got)
	}
	waittest.Until(t, "explain has the field's description", func() bool {
		return strings.Contains(k.Run(t, "explain", "gateway.color").Stdout, "What it looks like.")
	})
	// Older clients read OpenAPI v2, in protobuf or in JSON.
	var times map[string]int
	var swagger string
	waittest.Until(t, "OpenAPI v2 has the new kind", func() bool {
		doc, err := e2e.FleetClient(t, nil).Discovery().OpenAPISchema()
		if err != nil {
			t.Log(err) // a timeout on a busy machine
			return false
		}
		times = map[string]int{}
		for _, d := range doc.GetDefinitions().GetAdditionalProperties() {
			times[d.GetName()]++
		}
		swagger = k.Must(t, "get", "--raw", e2e.FleetPrefix+"/openapi/v2")
		return times["org.example.v1.Gateway"] > 0 && strings.Contains(swagger, `"org.example.v1.Gateway"`)
	})
	for _, name := range []string{"io.k8s.api.core.v1.Pod", "org.example.v1.Gateway"} {
		if times[name] != 1 || strings.Count(swagger, strconv.Quote(name)+":{") != 1 {
			t.Errorf("OpenAPI v2 has %s %d times in protobuf, %d in JSON", name, times[name],
				strings.Count(swagger, strconv.Quote(name)+":{"))
		}
	}
	if got := k.Must(t, "explain", "pod.spec.containers"); !strings.Contains(got,
		"List of containers belonging to the pod") {
		t.Errorf("explain: %s", got)
	}
	waittest.Until(t, "list of gateways with a warning", func() bool {
		r := k.Run(t, "get", "gateways")
		return r.Code == 0 && strings.Contains(r.Stdout, "member2") &&
			strings.Contains(r.Stderr, `Warning: cluster "member1"`)
	})
	if got := k.Must(t, "version"); !strings.Contains(got, "Server Version: v1.") {
		t.Errorf("version: %s", got)
	}
}

func TestFleetDrain(t *testing.T) {
	ns := e2e.CreatePods(t)
	k := fleet(t, `{apiVersion: v1, kind: Pod}, {apiVersion: v1, kind: Node}, {apiVersion: apps/v1, kind: "*"}`)
	node := e2e.Direct("member1").Must(t, "get", "pod", "same", "-n", ns, "-o", "jsonpath={.spec.nodeName}")
	for _, pod := range []string{"same", "on-member1"} {
		r := k.Run(t, "drain", node+"@member1", "--dry-run=server", "--force",
			"--pod-selector=app in (same, on-member1, on-member2)")
		if r.Code != 0 || !strings.Contains(r.Stdout+r.Stderr, ns+"/"+pod+"@member1") ||
			strings.Contains(r.Stdout+r.Stderr, "member2") {
			t.Errorf("drain: %v", r)
		}
		if got := k.Must(t, "describe", "node", node+"@member1"); !strings.Contains(got, pod+"@member1") ||
			strings.Contains(got, "on-member2") {
			t.Errorf("describe says %s", got)
		}
	}
	r := k.Run(t, "get", "pods", "-A", "--field-selector", "status.phase=Running@member1")
	if r.Code == 0 || !strings.Contains(r.Stderr, "does not select by name") {
		t.Errorf("a selector that names a cluster where no name is: %v", r)
	}
}
