package gateway_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// checkSameOutput repeats a command until the results are equal. The state of the cluster may change between the two
// runs.
func checkSameOutput(t *testing.T, args ...string) {
	t.Helper()
	var d, g e2e.Result
	via := slices.Clone(args)
	if i := slices.Index(args, "--raw"); i >= 0 {
		via[i+1] = "/clusters/member1" + via[i+1]
	}
	equal := e2e.Within(t, func() bool {
		d, g = e2e.Direct("member1").Run(t, args...), e2e.Through(t, "member1").Run(t, via...)
		return d.Code == g.Code && e2e.Normalize(d.Stdout) == e2e.Normalize(g.Stdout) &&
			e2e.Normalize(d.Stderr) == e2e.Normalize(g.Stderr)
	})
	if !equal {
		t.Errorf("kubectl %s\ndirectly: %v\nthrough the gateway: %v", strings.Join(args, " "), d, g)
	}
}

// TestReadsLookTheSame: a user must see the same objects, columns and errors at the gateway.
func TestReadsLookTheSame(t *testing.T) {
	ns := seed(t)
	for _, args := range [][]string{
		{"get", "nodes"},
		{"get", "nodes", "-o", "wide"},
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "pods", "-n", ns, "-o", "json"},
		{"get", "pods", "-n", ns, "-o", "yaml", "--show-managed-fields"},
		{"get", "pods", "-n", ns, "-o", "name"},
		{"get", "pods", "-n", ns, "-l", "app in (web,db)", "--field-selector", "status.phase=Running"},
		{"get", "pods", "-n", ns, "-o", "jsonpath={.items[*].metadata.name}"},
		{"get", "pods", "-n", ns, "--sort-by", ".metadata.name", "--show-labels"},
		{"get", "all", "-n", ns},
		{"get", "pod", "nosuch"},
		{"get", "nosuchkind"},
		{"get", "configmap", "odd:name", "-n", ns},
		{"get", "clusterroles", "system:node", "-o", "yaml"},
		{"get", "events", "-A", "--limit=1"},
		{"get", "configmaps", "-A", "--chunk-size=2"},
		{"get", "--raw", "/api/v1/namespaces/" + ns + "/pods?limit=1&labelSelector=app%3Dweb"},
		{"get", "--raw", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode"},
		{"get", "--raw", "/healthz"},
		{"get", "--raw", "/readyz?verbose"},
		{"get", "--raw", "/nosuchpath"},
		{"get", "--raw", "/openapi/v3"},
		{"describe", "node", "member1-node"},
		{"describe", "pod", "web", "-n", ns},
		{"describe", "namespace", ns},
		{"explain", "pod.spec.containers"},
		{"explain", "deployment", "--recursive"},
		{"api-resources"},
		{"api-versions"},
		{"auth", "can-i", "create", "pods", "-n", ns},
		{"auth", "can-i", "--list", "-n", ns},
		{"logs", "web", "-n", ns},
		{"logs", "web", "-n", ns, "--tail=1", "--timestamps=false"},
		{"logs", "nosuch", "-n", ns},
		{"top", "nodes"},
		{"version", "-o", "json"},
		{"cluster-info", "dump", "--namespaces", ns, "-o", "name"},
		{"diff", "-f", e2e.Manifest(t, ns, web)},
		{"rollout", "history", "deployment", "-n", ns},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args, " "), ns, "NS"), func(t *testing.T) { checkSameOutput(t, args...) })
	}
}

const web = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: web
    command: [sh, -c, "echo line one; echo line two; exec sleep 100000"]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "odd:name"}
data: {a: b}
`

func seed(t *testing.T) string {
	t.Helper()
	k, ns := e2e.Direct("member1"), e2e.NewNamespace(t, "member1")
	k.Must(t, "apply", "-f", e2e.Manifest(t, ns, strings.ReplaceAll(web, "odd:name", "odd-name")))
	k.Must(t, "wait", "-n", ns, "--for=condition=Ready", "pod/web", "--timeout=4m")
	return ns
}

// TestWritesDoTheSame: no write may have another effect through the gateway.
func TestWritesDoTheSame(t *testing.T) {
	crd := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(crd, []byte(widgetCRD), 0o600); err != nil {
		t.Fatal(err)
	}
	d, g := e2e.Direct("member1"), e2e.Through(t, "member1")
	g.Env = []string{`KUBE_EDITOR=sed -i s/replicas:.*/replicas:\ 3/`}
	d.Env = g.Env
	g.Must(t, "apply", "-f", crd)
	g.Must(t, "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=4m")
	t.Cleanup(func() { d.Run(t, "delete", "crd", "widgets.example.com") })
	steps := func(ns string) [][]string {
		objects := e2e.Manifest(t, ns, e2e.Deployment)
		changed := e2e.Manifest(t, ns, strings.ReplaceAll(e2e.Deployment, "replicas: 1", "replicas: 2"))
		widget := e2e.Manifest(t, ns, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 1}\n")
		in := func(args ...string) []string { return append(args, "-n", ns) }
		return [][]string{
			{"create", "namespace", ns},
			{"apply", "-f", objects, "--dry-run=server"},
			{"apply", "-f", objects},
			{"apply", "-f", objects},
			{"diff", "-f", changed},
			{"apply", "-f", changed},
			{"apply", "-f", changed, "--server-side", "--field-manager=me"},
			{"apply", "-f", changed, "--server-side", "--force-conflicts"},
			in("rollout", "status", "deployment/idle", "--timeout=4m"),
			in("scale", "deployment/idle", "--replicas=1"),
			in("rollout", "status", "deployment/idle", "--timeout=4m"),
			in("edit", "deployment/idle"),
			in("get", "deployment", "idle", "-o", "jsonpath={.spec.replicas}"),
			in("label", "deployment/idle", "tier=back"),
			in("annotate", "deployment/idle", "note=yes"),
			in("set", "image", "deployment/idle", "idle=other"),
			in("patch", "deployment", "idle", "-p", `{"spec":{"replicas":1}}`),
			in("patch", "deployment", "idle", "--type=merge", "-p", `{"metadata":{"labels":{"tier":null}}}`),
			in("patch", "deployment", "idle", "--type=json", "-p", `[{"op":"replace","path":"/spec/replicas","value":2}]`),
			in("patch", "deployment", "idle", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":1}}`),
			in("expose", "deployment/idle", "--port=80"),
			in("create", "configmap", "c", "--from-literal=a=b"),
			in("create", "configmap", "c", "--from-literal=a=b"),
			in("create", "secret", "generic", "s", "--from-literal=a=b"),
			in("create", "token", "default", "--duration=10m", "--audience=x", "-o", "jsonpath={.kind}"),
			{"apply", "-f", widget},
			{"apply", "-f", widget, "--server-side", "--force-conflicts"},
			in("get", "widgets"),
			in("get", "widget", "w", "-o", "jsonpath={.spec}"),
			in("patch", "widget", "w", "--type=merge", "-p", `{"spec":{"size":2}}`),
			in("patch", "widget", "w", "--type=merge", "-p", `{"spec":{"size":"x"}}`),
			in("delete", "widget", "w"),
			in("delete", "configmap", "c", "--dry-run=server"),
			in("delete", "configmap", "c"),
			in("delete", "configmap", "c"),
			in("delete", "deployment", "idle", "--cascade=foreground", "--wait", "--timeout=4m"),
			in("wait", "--for=delete", "pods", "--all", "--timeout=4m"),
			in("delete", "secrets,services", "--all"),
			in("get", "pods,deployments,services,secrets"),
			{"delete", "namespace", ns, "--wait", "--timeout=4m"},
			{"get", "namespace", ns},
		}
	}
	direct, via := e2e.UniqueName(t), e2e.UniqueName(t)
	t.Cleanup(func() { d.Run(t, "delete", "namespace", direct, via, "--wait=false", "--ignore-not-found") })
	ds, gs := steps(direct), steps(via)
	for i := range ds {
		dr, gr := d.Run(t, ds[i]...), g.Run(t, gs[i]...)
		if ds[i][0] == "rollout" { // the number of intermediate states varies
			dr.Stdout, gr.Stdout = "", ""
		}
		if ds[i][0] == "wait" { // prints each remaining pod, whose number varies
			dr.Stdout, gr.Stdout = "", ""
		}
		if ds[i][0] == "diff" { // prints the names of temporary files
			dr.Stdout, gr.Stdout = linesWithPrefix(dr.Stdout, "+  "), linesWithPrefix(gr.Stdout, "+  ")
		}
		if dr.Code != gr.Code || e2e.Normalize(dr.Stdout) != e2e.Normalize(gr.Stdout) ||
			e2e.Normalize(dr.Stderr) != e2e.Normalize(gr.Stderr) {
			t.Errorf("kubectl %s\ndirectly: %v\nthrough the gateway: %v", strings.Join(gs[i], " "), dr, gr)
		}
	}
}

func linesWithPrefix(s, prefix string) string {
	var out []string
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, prefix) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
`
