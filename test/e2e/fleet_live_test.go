package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// bridgePrefix is the fleet at the bridge: one process, so that what one call has seen the next one knows.
const bridgePrefix = "/bridge/fleet"

// atBridge points a pass at the fleet in the bridge.
func atBridge(t *testing.T, k kubectl) kubectl {
	t.Helper()
	_, root := caller(t)
	k.server = root + bridgePrefix
	return k
}

// bridgeClient is client-go at the fleet in the bridge, as the owner.
func bridgeClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	cfg := fleetConfig(t, gateway(t).pass, nil)
	_, root := caller(t)
	cfg.Host = root + bridgePrefix
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// becomes waits until has returns want.
func becomes(t *testing.T, want string, has func() string) {
	t.Helper()
	var got string
	defer func() {
		if got != want {
			t.Logf("it is %q, want %q", got, want)
		}
	}()
	eventually(t, func() bool { got = has(); return got == want })
}

// TestFleetRegistriesChange holds: labels of clusters and registries that change are taken in by the next call, and by watches that run;
// registries unite; without any, the answer says what is missing; and a list whose cluster left between two of its pages does not end as if
// it were whole.
func TestFleetRegistriesChange(t *testing.T) {
	for _, m := range members {
		d := direct(m)
		for _, namespace := range []string{"live-a", "live-b"} {
			d.must(t, "create", "namespace", namespace)
			t.Cleanup(func() { d.run(t, "delete", "namespace", namespace, "--wait=false") })
			d.apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {live: \"yes\"}}}", m, namespace))
		}
		t.Cleanup(func() { own(t).run(t, "label", "cluster", m, "live-") })
	}
	client := bridgeClient(t).CoreV1().ConfigMaps("")
	options := metav1.ListOptions{LabelSelector: "live"}
	var list *corev1.ConfigMapList
	has := func() string {
		var err error
		if list, err = client.List(t.Context(), options); err != nil {
			return string(apierrors.ReasonForError(err))
		}
		var out []string
		for _, cm := range list.Items {
			out = append(out, cm.Namespace+"/"+cm.Name)
		}
		return strings.Join(out, " ")
	}
	label := func(m, label string) {
		t.Helper()
		own(t).must(t, "label", "cluster", m, label)
	}
	missing := func(k kubectl) {
		t.Helper()
		if r := k.run(t, "get", "--raw", bridgePrefix+"/api/v1/configmaps"); r.code == 0 || !strings.Contains(r.stderr, "configmaps of v1 are not global: no ResourceRegistry of search.karmada.io/v1alpha1") {
			t.Errorf("where nothing is global: %v", r)
		}
	}
	const labelled, ofA, ofB = "{labelSelector: {matchLabels: {live: \"yes\"}}}", "{apiVersion: v1, kind: ConfigMap, namespace: live-a}", "{apiVersion: v1, kind: ConfigMap, namespace: live-b}"
	registry(t, "live", labelled, ofA)
	becomes(t, "NotFound", has)
	missing(through(t, "member1"))
	label("member1", "live=yes")
	becomes(t, "live-a/member1", has)

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	w, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "live", ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	label("member2", "live=yes")
	e := <-w.ResultChan()
	if cm, ok := e.Object.(*corev1.ConfigMap); !ok || e.Type != watch.Added || cm.Name != "member2" || cm.Annotations[sourceAnnotation] != "member2" {
		t.Errorf("with the label comes %+v", e)
	}
	becomes(t, "live-a/member1 live-a/member2", has)
	first, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: "live", Limit: 1})
	if err != nil || first.Continue == "" {
		t.Fatalf("a page: %+v, %v", first, err)
	}
	label("member1", "live-")
	becomes(t, "live-a/member2", has)
	if _, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: "live", Limit: 1, Continue: first.Continue}); !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), "not in the fleet any more") {
		t.Errorf("a page after a cluster has left: %v", err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("without the label comes %+v", e)
	}

	registry(t, "live-too", "{clusterNames: [member1]}", ofB)
	becomes(t, "live-b/member1 live-a/member2", has)
	registry(t, "live", labelled, ofB)
	becomes(t, "live-b/member1 live-b/member2", has)
	own(t).must(t, "delete", "resourceregistry", "live-too")
	becomes(t, "live-b/member2", has)
	own(t).must(t, "delete", "resourceregistry", "live")
	becomes(t, "NotFound", has)
	missing(through(t, "member1"))
}

// TestFleetMemberRBAC holds: what each cluster lets the caller see is what the caller sees, whatever another caller has read before.
func TestFleetMemberRBAC(t *testing.T) {
	const user = "fleet-tenant"
	fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	owner := atBridge(t, through(t, "member1"))
	allow := func(m string) {
		t.Helper()
		direct(m).must(t, "create", "rolebinding", user, "-n", "tenants", "--clusterrole=edit", "--user="+user)
	}
	for _, m := range members {
		if out, err := cli(t, grantOn(m, user), "apply", "-f", "-"); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		t.Cleanup(func() { _, _ = cli(t, grantOn(m, user), "delete", "-f", "-") })
		d := direct(m)
		d.must(t, "create", "namespace", "tenants")
		t.Cleanup(func() { d.run(t, "delete", "namespace", "tenants", "--wait=false") })
		d.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: in-"+m+", namespace: tenants, labels: {tenants: \"yes\"}}, data: {of: "+m+"}}")
		if got := owner.must(t, "get", "configmap", "in-"+m, "-n", "tenants", "-o", "jsonpath={.data.of}"); got != m {
			t.Errorf("the owner reads %q", got)
		}
	}
	allow("member1")
	k := owner
	k.kubeconfig = passFor(t, user)
	in := func(args ...string) []string { return append(args, "-n", "tenants", "-o", "name") }
	list := in("get", "configmaps", "-l", "tenants")
	const refused = `cluster "member2": configmaps is forbidden: User "fleet-tenant" cannot list resource "configmaps"`
	eventually(t, func() bool { r := k.run(t, list...); return r.code == 0 && strings.Contains(r.stderr, refused) })
	if r := k.run(t, list...); r.code != 0 || r.stdout != "configmap/in-member1\n" || !strings.Contains(r.stderr, "Warning: "+refused) {
		t.Errorf("a list: %v", r)
	}
	if r := k.run(t, in("get", "configmap", "in-member1")...); r.code != 0 || r.stdout != "configmap/in-member1\n" {
		t.Errorf("what the caller may see: %v", r)
	}
	for name, want := range map[string][]string{ // member1 does not have it
		"in-member2":         {`Warning: cluster "member2": `, "(NotFound)"},
		"in-member2@member2": {"(Forbidden)"},
	} {
		r := k.run(t, "get", "configmap", name, "-n", "tenants", "-o", "yaml")
		if r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, `User "fleet-tenant" cannot get resource "configmaps"`) {
			t.Errorf("what the caller may not see, %s: %v", name, r)
		}
		says(t, r.stderr, want...)
	}
	if r := k.run(t, "get", "--raw", bridgePrefix+"/api/v1/namespaces/tenants/configmaps/in-member2?strict=true"); r.code == 0 || !strings.Contains(r.stderr, "(Forbidden)") {
		t.Errorf("what the caller may not see, and wants of all: %v", r)
	}
	k.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: tenants, annotations: {clusterpass.io/cluster: member1}}}")
	if got := direct("member1").must(t, "get", "configmap", "made", "-n", "tenants", "-o", "name"); got != "configmap/made\n" {
		t.Errorf("applied: %q", got)
	}
	r := k.run(t, "get", "configmaps", "-A", "-l", "tenants")
	if r.code == 0 || !strings.Contains(r.stderr, "(Forbidden)") || !strings.Contains(r.stderr, refused) || !strings.Contains(r.stderr, strings.Replace(refused, "member2", "member1", 1)) {
		t.Errorf("where no cluster allows it: %v", r)
	}
	watching := k.start(t, clusters.BuiltKubectl(), in("get", "configmaps", "-l", "tenants", "--watch")...)
	watching.line("configmap/in-member1")
	allow("member2")
	watching.line("configmap/in-member2") // it is asked again
	becomes(t, "configmap/in-member1\nconfigmap/in-member2\n", func() string {
		r := k.run(t, list...)
		return r.stdout + r.stderr // without a warning
	})
}

// TestFleetWithoutTheKind holds: a kind that two of three clusters have works for these: what is asked of one object without a word of the
// third, and lists with a warning. Such a kind of which nothing happens can be watched as any.
func TestFleetWithoutTheKind(t *testing.T) {
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: lamps.example.net}, spec: {group: example.net, scope: Namespaced,
names: {kind: Lamp, plural: lamps, singular: lamp}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {color: {type: string}}}}}]}}`
	d := direct("member2")
	d.apply(t, crd)
	t.Cleanup(func() { d.run(t, "delete", "crd", "lamps.example.net", "--wait=false") })
	d.must(t, "wait", "--for=condition=Established", "crd/lamps.example.net", "--timeout=4m")
	eventually(t, func() bool { return d.run(t, "get", "lamps").code == 0 })
	// The third is member2 by another name.
	if out, err := cli(t, "", "cluster", "add", "third", "--kubeconfig", clusters.KubeconfigFile(), "--context", "member2"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, "", "cluster", "remove", "third") })
	registry(t, "lamps", "{clusterNames: [member1, member2, third]}", "{apiVersion: example.net/v1, kind: Lamp}")
	k := atBridge(t, through(t, "member1"))
	eventually(t, func() bool { return k.run(t, "api-resources", "-o", "name").stdout == "lamps.example.net\n" })

	client, root := caller(t)
	began := map[string]*bufio.Reader{}
	for _, form := range []string{"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "", "resourceVersion=0"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+bridgePrefix+"/apis/example.net/v1/lamps?watch=1&"+form, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if warning := resp.Header.Get("Warning"); resp.StatusCode != http.StatusOK || !strings.Contains(warning, "member1") {
			t.Errorf("a watch with %q: %s, warnings %q", form, resp.Status, warning)
		}
		began[form] = bufio.NewReader(resp.Body)
		if strings.HasPrefix(form, "sendInitialEvents") {
			for line := ""; !strings.Contains(line, `"k8s.io/initial-events-end":"true"`); {
				if line, err = began[form].ReadString('\n'); err != nil || !strings.Contains(line, `"BOOKMARK"`) {
					t.Fatalf("where nothing happens comes %q, %v", line, err)
				}
			}
		}
	}
	time.Sleep(4 * time.Second) // Karmada's ends after 3, with an error
	d.apply(t, "{apiVersion: example.net/v1, kind: Lamp, metadata: {name: late, namespace: default}}")
	for form, lines := range began {
		line, err := lines.ReadString('\n')
		for ; err == nil && strings.HasPrefix(form, "send") && strings.HasPrefix(line, `{"type":"BOOKMARK"`); line, err = lines.ReadString('\n') { // that may come at any time
		}
		if err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) || !strings.Contains(line, `"name":"late"`) {
			t.Errorf("a watch with %q, once something happens: %q, %v", form, line, err)
		}
	}
	d.must(t, "delete", "lamp", "late", "-n", "default", "--timeout=4m")

	for where, want := range map[string]string{"one": "there may be: member2, third", "one@member1": "(NotFound)"} {
		r := k.with("---\n{apiVersion: example.net/v1, kind: Lamp, metadata: {name: "+where+", namespace: default}}").run(t, "create", "-f", "-")
		if r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %v", where, r)
		}
	}
	k.apply(t, "{apiVersion: example.net/v1, kind: Lamp, metadata: {name: one@third, namespace: default}, color: red}")
	r := k.run(t, "get", "lamps", "-n", "default")
	var rows []string
	for line := range strings.Lines(r.stdout) {
		rows = append(rows, strings.Join(strings.Fields(line)[:2], " "))
	}
	if !slices.Equal(rows, []string{"NAME CLUSTER", "one member2", "one third"}) || !strings.Contains(r.stderr, `Warning: cluster "member1"`) {
		t.Errorf("a list: %v", r)
	}
	if r := k.run(t, "get", "lamp", "one", "-n", "default"); r.code == 0 || !strings.Contains(r.stderr, `lamps "one" is in 2 clusters: member2, third; name one of them, as one@member2 or one@third`) {
		t.Errorf("one of several: %v", r)
	}
	k.must(t, "patch", "lamp", "one@member2", "-n", "default", "--type=merge", "-p", `{"color":"green"}`)
	if got := k.must(t, "get", "lamp", "one@third", "-n", "default", "-o", "jsonpath={.metadata.name} {.color}"); got != "one@third green" {
		t.Errorf("by the third's name it is %q", got)
	}
	says(t, k.must(t, "explain", "lamp.color"), "FIELD: color <string>")
	k.must(t, "delete", "lamp", "one@third", "-n", "default", "--timeout=4m")
	if r := k.run(t, "get", "lamp", "one", "-n", "default"); r.code == 0 || !strings.Contains(r.stderr, "(NotFound)") {
		t.Errorf("deleted: %v", r)
	}
}
