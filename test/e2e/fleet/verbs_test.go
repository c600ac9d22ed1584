package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func storedData(t *testing.T, m, namespace, name string) string {
	t.Helper()
	cm, err := e2e.DirectClient(t, m).CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return cm.Data["of"]
}

func appliedManifest(namespace, metadata string) string {
	return "---\n{apiVersion: v1, kind: ConfigMap, metadata: {" + metadata + ", namespace: " + namespace +
		"}, data: {of: applied}}\n"
}

// TestFleetVerbs: a command on name@cluster must not change the other cluster's object, or store the cluster in the
// object's name.
func TestFleetVerbs(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: Event}, {apiVersion: v1, kind: Namespace}")
	k.Env = []string{`KUBE_EDITOR=sed -i s/of:.*/of:\ edited/`}
	ns := e2e.NewNamespace(t, e2e.Members...)
	for _, m := range e2e.Members {
		e2e.Direct(m).Must(t, "create", "configmap", "settings", "-n", ns, "--from-literal=of="+m)
	}
	settings := appliedManifest(ns, "name: settings@member2")
	for _, step := range []struct {
		args         []string
		stdin        string
		prints, data string // data is that of member2 after the command
	}{
		{[]string{"get", "configmap", "settings@member2", "-o", "jsonpath={.metadata.name} {.data.of}"}, "",
			"settings@member2 member2", "member2"},
		{[]string{"describe", "configmap", "settings@member2"}, "", "settings@member2\n", "member2"},
		{[]string{"edit", "configmap", "settings@member2"}, "", "configmap/settings@member2 edited", "edited"},
		{[]string{"patch", "configmap", "settings@member2", "-p", `{"data":{"of":"strategic"}}`}, "",
			"configmap/settings@member2 patched", "strategic"},
		{[]string{"patch", "configmap", "settings@member2", "--type=json", "-p",
			`[{"op":"replace","path":"/data/of","value":"json"}]`}, "", "configmap/settings@member2 patched", "json"},
		{[]string{"label", "configmap", "settings@member2", "verbs=yes"}, "", "configmap/settings@member2 labeled", "json"},
		{[]string{"apply", "-f", "-"}, settings, "configmap/settings@member2 configured", "applied"},
		{[]string{"apply", "-f", "-"}, settings, "configmap/settings@member2 unchanged", "applied"},
		{[]string{"apply", "view-last-applied", "configmap", "settings@member2"}, "", "name: settings@member2", "applied"},
		{[]string{"diff", "-f", "-"}, settings, "", "applied"},
		{[]string{"replace", "-f", "-"}, strings.Replace(settings, "applied", "replaced", 1),
			"configmap/settings@member2 replaced", "replaced"},
		{[]string{"delete", "-f", "-", "--timeout=4m"}, settings, `configmap "settings@member2" deleted`, ""},
	} {
		k := k.WithInput(step.stdin)
		r := k.Run(t, append(step.args, "-n", ns)...)
		if got := storedData(t, "member2", ns, "settings"); r.Code != 0 || !strings.Contains(r.Stdout, step.prints) ||
			got != step.data {
			t.Errorf("kubectl %s: %v\nmember2 has %q, want %q", strings.Join(step.args, " "), r, got, step.data)
		}
		if got := storedData(t, "member1", ns, "settings"); got != "member1" {
			t.Fatalf("after kubectl %s member1 has %q", strings.Join(step.args, " "), got)
		}
		if step.args[0] == "apply" {
			if got := e2e.Direct("member2").Must(t, "get", "configmap", "settings", "-n", ns, "-o", "json"); strings.Contains(
				got, "@") {
				t.Errorf("after kubectl %s member2 stores %s", strings.Join(step.args, " "), got)
			}
		}
	}
}

// TestFleetCreatesInNamedCluster: an object must be created only in the cluster of its name, annotation or parameter.
func TestFleetCreatesInNamedCluster(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: Event}, {apiVersion: v1, kind: Namespace}")
	ns := e2e.NewNamespace(t, e2e.Members...)
	k.Must(t, "create", "configmap", "made@member2", "-n", ns, "--from-literal=of=made")
	if r := k.Run(t, "create", "configmap", "made@member2", "-n", ns); r.Code == 0 ||
		!strings.Contains(r.Stderr, `"made@member2" already exists`) {
		t.Errorf("made twice: %v", r)
	}
	if a, b := storedData(t, "member1", ns, "made"), storedData(t, "member2", ns, "made"); a != "" || b != "made" {
		t.Errorf("made in member2: member1 has %q, member2 %q", a, b)
	}
	generated := appliedManifest(ns, "generateName: generated-, annotations: {clusterpass.io/cluster: member1}")
	for _, args := range [][]string{{"--dry-run=server"}, nil} {
		e2e.WantText(t, k.WithInput(generated).Must(t, append([]string{"create", "-f", "-"}, args...)...),
			"configmap/generated-")
	}
	for m, want := range map[string]int{"member1": 1, "member2": 0} {
		if got := strings.Count(e2e.Direct(m).Must(t, "get", "configmaps", "-n", ns, "-o", "name"),
			"/generated-"); got != want {
			t.Errorf("%s has %d that are generated, want %d", m, got, want)
		}
	}
	if r := k.WithInput(appliedManifest(ns, "generateName: generated-")).Run(t,
		"create", "-f", "-"); r.Code == 0 || !strings.Contains(r.Stderr, "member1, member2") {
		t.Errorf("made anywhere: %v", r)
	}
	k.WithInput(`{"metadata":{"name":"alone"},"data":{"of":"alone"}}`).Must(t, "create", "-f", "-", "--raw",
		e2e.FleetPrefix+"/api/v1/namespaces/"+ns+"/configmaps?clusters=member1")
	if got := storedData(t, "member1", ns, "alone"); got != "alone" {
		t.Errorf("where one cluster may be meant alone, it has %q", got)
	}
	another := e2e.UniqueName(t)
	k.Must(t, "create", "namespace", another+"@member1")
	if got := k.Must(t, "get", "namespace", another, "--no-headers"); len(strings.Fields(got)) < 2 ||
		strings.Fields(got)[1] != "member1" {
		t.Errorf("the new namespace is %q", got)
	}
	k.Must(t, "delete", "namespace", another+"@member1", "--timeout=4m")
}

// TestFleetWorkloads: logs, exec and rollout must not reach the pods of another cluster's Deployment of the same name.
func TestFleetWorkloads(t *testing.T) {
	k := fleet(t, `{apiVersion: v1, kind: Pod}, {apiVersion: apps/v1, kind: "*"}`)
	ns := e2e.NewNamespace(t, e2e.Members...)
	in := func(args ...string) []string { return append(args, "-n", ns) }
	var docs strings.Builder
	for _, m := range e2e.Members {
		fmt.Fprintf(&docs, "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: web@%s, namespace: %s}, spec: "+
			"{selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, "+
			"spec: {automountServiceAccountToken: false, terminationGracePeriodSeconds: 0, containers: [{name: web, image: "+
			"one, env: [{name: OF, value: %s}], command: [/bin/sh, -c, 'echo I run in $OF; exec sleep 1000']}]}}}}\n", m, ns, m)
	}
	k.Apply(t, docs.String())
	rolledOut := func(m string) {
		t.Helper()
		e2e.WantText(t, k.Must(t, in("rollout", "status", "deployment/web@"+m, "--timeout=4m")...), "successfully rolled out")
	}
	fieldOf := func(m, path string) string {
		return e2e.Direct(m).Must(t, in("get", "deployment", "web", "-o", "jsonpath={"+path+"}")...)
	}
	for _, m := range e2e.Members {
		rolledOut(m)
		waittest.Until(t, "log of the deployment in "+m, func() bool { // a pod runs before it has written its log
			return k.Run(t, in("logs", "deployment/web@"+m)...).Stdout == "I run in "+m+"\n"
		})
		if got := k.Must(t, append(in("exec", "deployment/web@"+m), "--", "sh", "-c", "echo $OF")...); got != m+"\n" {
			t.Errorf("exec in %s names %q", m, got)
		}
	}
	k.Must(t, in("scale", "deployment/web@member2", "--replicas=2")...)
	k.Must(t, in("wait", "deployment/web@member2", "--for=jsonpath={.status.availableReplicas}=2", "--timeout=4m")...)
	k.Must(t, in("set", "image", "deployment/web@member2", "web=two")...)
	rolledOut("member2")
	k.Must(t, in("wait", "deployment/web@member2", "--for=condition=Available", "--timeout=4m")...)
	if got := k.Must(t, in("get", "deployment", "web@member2", "--subresource=scale", "-o",
		"jsonpath={.metadata.name} {.status.replicas}")...); got != "web@member2 2" {
		t.Errorf("its scale is %q", got)
	}
	if got := k.Must(t, in("rollout", "history", "deployment/web@member2", "--revision=2")...); !strings.Contains(got,
		"two") {
		t.Errorf("its history is %s", got)
	}
	if got := fieldOf("member1",
		".spec.replicas} {.spec.template.spec.containers[0].image} {.metadata.generation"); got != "1 one 1" {
		t.Errorf("member1's is %s", got)
	}
	k.Must(t, in("rollout", "undo", "deployment/web@member2")...)
	if got := fieldOf("member2", ".spec.template.spec.containers[0].image"); got != "one" {
		t.Errorf("undone, it has %s", got)
	}
	pod := k.Must(t, in("get", "pods", "-l", "app=web,clusterpass.io/cluster=member1", "-o",
		"jsonpath={.items[0].metadata.name}")...)
	if !strings.HasSuffix(pod, "@member1") {
		t.Fatalf("a list of one cluster has %q", pod)
	}
	k.WithInput(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+pod+`","namespace":"`+ns+`"}}`).Must(t,
		"create", "-f", "-", "--raw", e2e.FleetPrefix+"/api/v1/namespaces/"+ns+"/pods/"+pod+"/eviction")
	waittest.Until(t, "evicted pod is deleted", func() bool {
		return strings.Contains(k.Run(t, in("get", "pod", pod)...).Stderr, "(NotFound)")
	})
	k.Must(t, in("delete", "deployment", "web@member1", "--cascade=foreground", "--timeout=4m")...)
	if got := k.Must(t, in("get", "deployments", "--no-headers", "-o",
		"custom-columns=:metadata.name,:metadata.annotations.resource\\.karmada\\.io/cached-from-cluster")...); strings.Join(
		strings.Fields(got), " ") != "web member2" {
		t.Errorf("deleted in member1, there are %q", got)
	}
}
