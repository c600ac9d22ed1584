package fleet_test

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

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func atBridge(t *testing.T, k e2e.Kubectl) e2e.Kubectl {
	t.Helper()
	_, root := e2e.Caller(t)
	k.Server = root + e2e.BridgeFleetPrefix
	return k
}

func bridgeClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	cfg := e2e.FleetConfig(t, e2e.Shared(t).Kubeconfig, nil)
	_, root := e2e.Caller(t)
	cfg.Host = root + e2e.BridgeFleetPrefix
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func expectNotGlobal(t *testing.T) {
	t.Helper()
	if r := e2e.Through(t, "member1").Run(t, "get", "--raw", e2e.BridgeFleetPrefix+"/api/v1/configmaps"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "configmaps of v1 are not global: no ResourceRegistry of search.karmada.io/v1alpha1") {
		t.Errorf("where nothing is global: %v", r)
	}
}

// TestFleetRegistriesChange: requests and open watches must follow changed labels of clusters and registries:
//   - Several registries apply together. Without any, the error names what is missing.
//   - A list does not look complete if one of its clusters left between two pages.
func TestFleetRegistriesChange(t *testing.T) {
	a, b := e2e.NewNamespace(t, e2e.Members...), e2e.NewNamespace(t, e2e.Members...)
	for _, m := range e2e.Members {
		d := e2e.Direct(m)
		for _, namespace := range []string{a, b} {
			const doc = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {live: \"yes\"}}}"
			d.Apply(t, fmt.Sprintf(doc, m, namespace))
		}
		t.Cleanup(func() { e2e.OwnAPI(t).Run(t, "label", "cluster", m, "live-") })
	}
	client := bridgeClient(t).CoreV1().ConfigMaps("")
	options := metav1.ListOptions{LabelSelector: "live"}
	var list *corev1.ConfigMapList
	listed := func() string {
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
		e2e.OwnAPI(t).Must(t, "label", "cluster", m, label)
	}
	const labelled = "{labelSelector: {matchLabels: {live: \"yes\"}}}"
	const selector = "{apiVersion: v1, kind: ConfigMap, namespace: %s}"
	inA, inB := fmt.Sprintf(selector, a), fmt.Sprintf(selector, b)
	e2e.CreateRegistry(t, "live", labelled, inA)
	e2e.WaitForValue(t, "NotFound", listed)
	expectNotGlobal(t)
	label("member1", "live=yes")
	e2e.WaitForValue(t, a+"/member1", listed)

	ctx, cancel := context.WithTimeout(t.Context(), 2*e2e.Patience)
	defer cancel()
	w, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "live", ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	label("member2", "live=yes")
	e := <-w.ResultChan()
	if cm, ok := e.Object.(*corev1.ConfigMap); !ok || e.Type != watch.Added || cm.Name != "member2" ||
		cm.Annotations[e2e.SourceAnnotation] != "member2" {
		t.Errorf("with the label comes %+v", e)
	}
	e2e.WaitForValue(t, a+"/member1 "+a+"/member2", listed)
	first, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: "live", Limit: 1})
	if err != nil || first.Continue == "" {
		t.Fatalf("a page: %+v, %v", first, err)
	}
	label("member1", "live-")
	e2e.WaitForValue(t, a+"/member2", listed)
	if _, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: "live", Limit: 1,
		Continue: first.Continue}); !apierrors.IsResourceExpired(err) ||
		!strings.Contains(err.Error(), "has left the fleet") {
		t.Errorf("a page after a cluster has left: %v", err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("without the label comes %+v", e)
	}

	e2e.CreateRegistry(t, "live-too", "{clusterNames: [member1]}", inB)
	e2e.WaitForValue(t, b+"/member1 "+a+"/member2", listed)
	e2e.CreateRegistry(t, "live", labelled, inB)
	e2e.WaitForValue(t, b+"/member1 "+b+"/member2", listed)
	e2e.OwnAPI(t).Must(t, "delete", "resourceregistry", "live-too")
	e2e.WaitForValue(t, b+"/member2", listed)
	e2e.OwnAPI(t).Must(t, "delete", "resourceregistry", "live")
	e2e.WaitForValue(t, "NotFound", listed)
	expectNotGlobal(t)
}

// TestFleetMemberRBAC: a caller must not see objects that only another caller may read.
func TestFleetMemberRBAC(t *testing.T) {
	const user = "fleet-tenant"
	ns := e2e.NewNamespace(t, e2e.Members...)
	fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	owner := atBridge(t, e2e.Through(t, "member1"))
	allow := func(m string) {
		t.Helper()
		e2e.Direct(m).Must(t, "create", "rolebinding", user, "-n", ns, "--clusterrole=edit", "--user="+user)
	}
	for _, m := range e2e.Members {
		if out, err := e2e.CLI(t, e2e.GrantYAML(m, user), "apply", "-f", "-"); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		t.Cleanup(func() { _, _ = e2e.CLI(t, e2e.GrantYAML(m, user), "delete", "-f", "-") })
		d := e2e.Direct(m)
		d.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: in-"+m+", namespace: "+ns+
			", labels: {tenants: \"yes\"}}, data: {of: "+m+"}}")
		if got := owner.Must(t, "get", "configmap", "in-"+m, "-n", ns, "-o", "jsonpath={.data.of}"); got != m {
			t.Errorf("the owner reads %q", got)
		}
	}
	allow("member1")
	k := owner
	k.Kubeconfig = e2e.CertificateKubeconfig(t, user)
	in := func(args ...string) []string { return append(args, "-n", ns, "-o", "name") }
	list := in("get", "configmaps", "-l", "tenants")
	const refused = `cluster "member2": configmaps is forbidden: User "fleet-tenant" cannot list resource "configmaps"`
	waittest.Until(t, "list with a warning about member2", func() bool {
		r := k.Run(t, list...)
		return r.Code == 0 && strings.Contains(r.Stderr, refused)
	})
	if r := k.Run(t, list...); r.Code != 0 || r.Stdout != "configmap/in-member1\n" ||
		!strings.Contains(r.Stderr, "Warning: "+refused) {
		t.Errorf("a list: %v", r)
	}
	if r := k.Run(t, in("get", "configmap", "in-member1")...); r.Code != 0 || r.Stdout != "configmap/in-member1\n" {
		t.Errorf("what the caller may see: %v", r)
	}
	checkForbiddenReads(t, k, ns)
	k.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: "+ns+
		", annotations: {clusterpass.io/cluster: member1}}}")
	if got := e2e.Direct("member1").Must(t, "get", "configmap", "made", "-n", ns, "-o",
		"name"); got != "configmap/made\n" {
		t.Errorf("applied: %q", got)
	}
	r := k.Run(t, "get", "configmaps", "-A", "-l", "tenants")
	if r.Code == 0 || !strings.Contains(r.Stderr, "(Forbidden)") || !strings.Contains(r.Stderr, refused) ||
		!strings.Contains(r.Stderr, strings.Replace(refused, "member2", "member1", 1)) {
		t.Errorf("where no cluster allows it: %v", r)
	}
	watching := k.Start(t, e2e.Clusters.BuiltKubectl(), in("get", "configmaps", "-l", "tenants", "--watch")...)
	watching.Line("configmap/in-member1")
	allow("member2")
	watching.Line("configmap/in-member2") // the watch retries member2
	e2e.WaitForValue(t, "configmap/in-member1\nconfigmap/in-member2\n", func() string {
		r := k.Run(t, list...)
		return r.Stdout + r.Stderr // Stderr would have a warning
	})
}

func checkForbiddenReads(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	for name, want := range map[string][]string{ // only member2 has the object
		"in-member2":         {`Warning: cluster "member2": `, "(NotFound)"},
		"in-member2@member2": {"(Forbidden)"},
	} {
		r := k.Run(t, "get", "configmap", name, "-n", ns, "-o", "yaml")
		if r.Code == 0 || r.Stdout != "" ||
			!strings.Contains(r.Stderr, `User "fleet-tenant" cannot get resource "configmaps"`) {
			t.Errorf("what the caller may not see, %s: %v", name, r)
		}
		e2e.WantText(t, r.Stderr, want...)
	}
	if r := k.Run(t, "get", "--raw", e2e.BridgeFleetPrefix+"/api/v1/namespaces/"+ns+
		"/configmaps/in-member2?strict=true"); r.Code == 0 || !strings.Contains(r.Stderr, "(Forbidden)") {
		t.Errorf("what the caller may not see, and wants of all: %v", r)
	}
}

// TestFleetWithoutTheKind: one cluster without a CustomResourceDefinition must not break the kind for the fleet:
//   - Requests for one object ignore the third cluster. Lists have a warning.
//   - A watch of the kind stays open while no object changes.
func TestFleetWithoutTheKind(t *testing.T) {
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: lamps.example.net}, spec: {group: example.net, scope: Namespaced,
names: {kind: Lamp, plural: lamps, singular: lamp}, versions: [{name: v1, served: true, storage: true,
schema: {openAPIV3Schema: {type: object, properties: {color: {type: string}}}}}]}}`
	ns, d := e2e.NewNamespace(t, e2e.Members...), e2e.Direct("member2")
	d.Apply(t, crd)
	t.Cleanup(func() { d.Run(t, "delete", "crd", "lamps.example.net") })
	d.Must(t, "wait", "--for=condition=Established", "crd/lamps.example.net", "--timeout=4m")
	waittest.Until(t, "member2 serves lamps", func() bool { return d.Run(t, "get", "lamps").Code == 0 })
	addMember2As(t, "third", e2e.Clusters.KubeconfigFile())
	e2e.CreateRegistry(t, "lamps", "{clusterNames: [member1, member2, third]}", "{apiVersion: example.net/v1, kind: Lamp}")
	k := atBridge(t, e2e.Through(t, "member1"))
	waittest.Until(t, "api-resources has the new kind", func() bool {
		return k.Run(t, "api-resources", "-o", "name").Stdout == reviewNames+"lamps.example.net\n"
	})

	checkLampWatches(t, ns)
	checkLampObjects(t, k, ns)
}

// checkLampWatches opens watches while there are no objects, and expects the first event of each.
func checkLampWatches(t *testing.T, ns string) {
	t.Helper()
	client, root := e2e.Caller(t)
	watches := map[string]*bufio.Reader{}
	for _, query := range []string{"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "",
		"resourceVersion=0"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*e2e.Patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+e2e.BridgeFleetPrefix+
			"/apis/example.net/v1/lamps?watch=1&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if warning := resp.Header.Get("Warning"); resp.StatusCode != http.StatusOK || !strings.Contains(warning, "member1") {
			t.Errorf("a watch with %q: %s, warnings %q", query, resp.Status, warning)
		}
		watches[query] = bufio.NewReader(resp.Body)
		if strings.HasPrefix(query, "sendInitialEvents") {
			for line := ""; !strings.Contains(line, `"k8s.io/initial-events-end":"true"`); {
				if line, err = watches[query].ReadString('\n'); err != nil || !strings.Contains(line, `"BOOKMARK"`) {
					t.Fatalf("where nothing happens comes %q, %v", line, err)
				}
			}
		}
	}
	e2e.Idle(4 * time.Second) // Karmada's watch fails after 3 seconds
	d := e2e.Direct("member2")
	d.Apply(t, "{apiVersion: example.net/v1, kind: Lamp, metadata: {name: late, namespace: "+ns+"}}")
	for query, lines := range watches {
		line, err := lines.ReadString('\n')
		for err == nil && strings.HasPrefix(query, "send") && strings.HasPrefix(line, `{"type":"BOOKMARK"`) {
			line, err = lines.ReadString('\n') // bookmarks have no fixed time
		}
		if err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) || !strings.Contains(line, `"name":"late"`) {
			t.Errorf("a watch with %q, once something happens: %q, %v", query, line, err)
		}
	}
	d.Must(t, "delete", "lamp", "late", "-n", ns, "--timeout=4m")
}

func checkLampObjects(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	for name, want := range map[string]string{
		"one": "possible clusters for lamps: member2, third", "one@member1": "(NotFound)",
	} {
		r := k.WithInput("---\n{apiVersion: example.net/v1, kind: Lamp, metadata: {name: "+name+", namespace: "+ns+
			"}}").Run(t, "create", "-f", "-")
		if r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %v", name, r)
		}
	}
	k.Apply(t, "{apiVersion: example.net/v1, kind: Lamp, metadata: {name: one@third, namespace: "+ns+"}, color: red}")
	r := k.Run(t, "get", "lamps", "-n", ns)
	var rows []string
	for line := range strings.Lines(r.Stdout) {
		rows = append(rows, strings.Join(strings.Fields(line)[:2], " "))
	}
	if !slices.Equal(rows, []string{"NAME CLUSTER", "one member2", "one third"}) ||
		!strings.Contains(r.Stderr, `Warning: cluster "member1"`) {
		t.Errorf("a list: %v", r)
	}
	if r := k.Run(t, "get", "lamp", "one", "-n", ns); r.Code == 0 ||
		!strings.Contains(r.Stderr,
			`lamps "one" is in 2 clusters: member2, third; name one of them, as one@member2 or one@third`) {
		t.Errorf("one of several: %v", r)
	}
	k.Must(t, "patch", "lamp", "one@member2", "-n", ns, "--type=merge", "-p", `{"color":"green"}`)
	if got := k.Must(t, "get", "lamp", "one@third", "-n", ns, "-o",
		"jsonpath={.metadata.name} {.color}"); got != "one@third green" {
		t.Errorf("by the third's name it is %q", got)
	}
	e2e.WantText(t, k.Must(t, "explain", "lamp.color"), "FIELD: color <string>")
	k.Must(t, "delete", "lamp", "one@third", "-n", ns, "--timeout=4m")
	if r := k.Run(t, "get", "lamp", "one", "-n", ns); r.Code == 0 || !strings.Contains(r.Stderr, "(NotFound)") {
		t.Errorf("deleted: %v", r)
	}
}
