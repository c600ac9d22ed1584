package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// bareRefused is in the error of every write that names no cluster.
const bareRefused = "by its name alone is refused"

// manifestDocs returns a ConfigMap and a Deployment with the annotations.
func manifestDocs(annotations string) (configMap, deployment string) {
	return "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: manifests, annotations: {" + annotations + "}}, data: {of: manifest}}\n",
		"---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: manifests, annotations: {" + annotations + "}}, spec: {replicas: 0, " +
			"selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: one}]}}}}\n"
}

// TestFleetManifestOfAnotherCluster runs each command of kubectl that takes a manifest. The manifest names member1, and
// only member2 has objects of its names. If this fails, kubectl deletes or changes the object of the wrong cluster.
func TestFleetManifestOfAnotherCluster(t *testing.T) {
	k := fleet(t, `{apiVersion: v1, kind: ConfigMap}, {apiVersion: apps/v1, kind: "*"}`)
	for _, m := range e2e.Members {
		e2e.NewNamespace(t, e2e.Direct(m), "manifests")
		t.Cleanup(func() { e2e.Direct(m).Run(t, "delete", "namespace", "manifests", "--wait=false") })
	}
	configMap, deployment := manifestDocs("")
	e2e.Direct("member2").Apply(t, configMap+deployment)
	e2e.Eventually(t, func() bool { return k.Run(t, "get", "deployment", "web", "-n", "manifests").Code == 0 })
	// The state has no resourceVersion: the controller of Deployments writes, too.
	state := func() string {
		return e2e.Direct("member2").Must(t, "get", "configmap/settings", "deployment/web", "-n", "manifests",
			"-o", `jsonpath={range .items[*]}{.metadata.uid} {.metadata.labels} {.metadata.annotations.note} {.data} {.spec} {.metadata.deletionTimestamp}{"\n"}{end}`)
	}
	before := state()
	configMap, deployment = manifestDocs("clusterpass.io/cluster: member1")
	plainMap, plain := manifestDocs("")
	dir := t.TempDir()
	for name, text := range map[string]string{"configmap.yaml": configMap, "kustomization.yaml": "resources: [configmap.yaml]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const file = "-f -"
	for _, tt := range []struct{ name, command, stdin, says string }{
		{"delete", "delete " + file, configMap, bareRefused},
		{"delete of a kustomization", "delete -k " + dir, "", bareRefused},
		{"delete by a bare name", "delete configmap settings -n manifests", "", bareRefused},
		{"delete --raw", "delete --raw " + e2e.FleetPrefix + "/api/v1/namespaces/manifests/configmaps/settings", "", bareRefused},
		{"replace", "replace " + file, configMap, `its annotations say that it is of cluster "member1"`},
		{"replace --force", "replace --force " + file, configMap, bareRefused},
		{"replace --force without an annotation", "replace --force " + file, plainMap, bareRefused},
		{"apply", "apply " + file, strings.Replace(configMap, "of: manifest", "of: changed", 1), `its annotations say that it is of cluster "member1"`},
		{"apply --force of what is immutable", "apply --force " + file, strings.ReplaceAll(plain, "app: web", "app: other"), bareRefused},
		{"patch", `patch -p {"data":{"of":"patched"}} ` + file, configMap, bareRefused},
		{"label", "label note=yes " + file, configMap, bareRefused},
		{"annotate", "annotate note=yes " + file, configMap, bareRefused},
		{"edit", "edit " + file, configMap, bareRefused},
		{"scale", "scale --replicas=1 " + file, deployment, bareRefused},
		{"set image", "set image web=two " + file, deployment, bareRefused},
		{"set env", "set env A=B " + file, deployment, bareRefused},
		{"rollout restart", "rollout restart " + file, deployment, bareRefused},
		{"rollout pause", "rollout pause " + file, deployment, bareRefused},
		{"label by a bare name", "label configmap settings note=yes -n manifests", "", bareRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for form, k := range map[string]e2e.Kubectl{"fleet": k, "fleet/@": qualified(t, k)} {
				k.Env = []string{`KUBE_EDITOR=sed -i s/of:.*/of:\ edited/`}
				r := k.WithInput(tt.stdin).Run(t, strings.Fields(tt.command)...)
				if r.Code == 0 || !strings.Contains(strings.ReplaceAll(r.Stderr, `\"`, `"`), tt.says) {
					t.Errorf("%s: %v, want %s", form, r, tt.says)
				}
				if after := state(); after != before {
					t.Fatalf("%s: member2 has\n%s, before\n%s", form, after, before)
				}
			}
		})
	}
	t.Run("apply --server-side", func(t *testing.T) {
		k.WithInput(configMap).Must(t, "apply", "--server-side", "-f", "-")
		if after := state(); after != before {
			t.Errorf("member2 has\n%s, before\n%s", after, before)
		}
		if got := e2e.Direct("member1").Must(t, "get", "configmap", "settings", "-n", "manifests", "-o", "jsonpath={.data.of}"); got != "manifest" {
			t.Errorf("member1 has %q", got)
		}
	})
	t.Run("the forms that an error names", func(t *testing.T) {
		in := func(name string) string { return strings.Replace(configMap, "name: settings", "name: "+name, 1) }
		k.WithInput(in("settings@member1")).Must(t, "delete", "-f", "-", "--timeout=4m")
		k.Must(t, "label", "configmap", "settings", "note=yes", "-n", "manifests@member2")
		k.Must(t, "delete", "configmap", "settings", "-n", "manifests@member2", "--timeout=4m")
		if r := k.Run(t, "delete", "configmap", "settings", "-n", "manifests"); !strings.Contains(r.Stderr, "(NotFound)") {
			t.Errorf("deleted in both clusters: %v", r)
		}
		k.Must(t, "delete", "configmap", "settings", "-n", "manifests", "--ignore-not-found")
	})
}

// TestFleetDeleteBySelector deletes what kubectl lists, in every cluster and also where names are equal. If this fails,
// kubectl delete -l leaves objects, or waits for ever.
func TestFleetDeleteBySelector(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	for _, m := range e2e.Members {
		d := e2e.Direct(m)
		e2e.NewNamespace(t, d, "selected")
		t.Cleanup(func() { d.Run(t, "delete", "namespace", "selected", "--wait=false") })
		for _, name := range []string{"same", "alone-" + m, "stays"} {
			d.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: selected, labels: {stays: %q}}}", name, fmt.Sprint(name == "stays")))
		}
	}
	e2e.WantText(t, k.Must(t, "delete", "configmaps", "-l", "stays=false", "-n", "selected", "--timeout=4m"),
		`"same@member1"`, `"same@member2"`, `"alone-member1@member1"`, `"alone-member2@member2"`)
	for _, m := range e2e.Members {
		if got := e2e.Direct(m).Must(t, "get", "configmaps", "-l", "stays", "-n", "selected", "-o", "name"); got != "configmap/stays\n" {
			t.Errorf("%s has %q", m, got)
		}
	}
	k.Must(t, "delete", "configmaps", "-l", "stays", "-n", "selected@member1", "--timeout=4m")
	if got := k.Must(t, "get", "configmaps", "-l", "stays", "-n", "selected", "-o", "jsonpath={.items[*].metadata.annotations}"); !strings.Contains(got, "member2") || strings.Contains(got, "member1") {
		t.Errorf("deleted in a namespace of member1, there are %s", got)
	}
}

// TestFleetPrune prunes in one cluster alone. If this fails, kubectl apply --prune deletes other clusters' objects.
func TestFleetPrune(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	doc := func(name string) string {
		return "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", labels: {app: pruned}}}\n"
	}
	for _, m := range e2e.Members {
		e2e.NewNamespace(t, e2e.Direct(m), "prune")
		t.Cleanup(func() { e2e.Direct(m).Run(t, "delete", "namespace", "prune", "--wait=false") })
	}
	has := func(m string) string {
		return strings.Join(strings.Fields(e2e.Direct(m).Must(t, "get", "configmaps", "-n", "prune", "-l", "app", "-o", "name")), " ")
	}
	for form, k := range map[string]e2e.Kubectl{"fleet": k, "fleet/@": qualified(t, k)} {
		for _, m := range e2e.Members {
			e2e.Direct(m).WithInput(doc("keeps")+doc("goes")).Must(t, "apply", "-n", "prune", "-f", "-")
		}
		prune := []string{"apply", "--prune", "-l", "app=pruned", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"}
		if r := k.WithInput(doc("keeps@member1")).Run(t, append(prune, "-n", "prune")...); r.Code == 0 || !strings.Contains(r.Stderr, "configmaps to prune cannot be listed") {
			t.Errorf("%s: in all clusters: %v", form, r)
		}
		const both = "configmap/goes configmap/keeps"
		if a, b := has("member1"), has("member2"); a != both || b != both {
			t.Fatalf("%s: after a refusal member1 has %s, member2 %s", form, a, b)
		}
		r := k.WithInput(doc("keeps")).Run(t, append(prune, "-n", "prune@member1")...)
		if a, b := has("member1"), has("member2"); r.Code != 0 || a != "configmap/keeps" || b != both {
			t.Errorf("%s: in a namespace of member1: %v\nmember1 has %s, member2 %s", form, r, a, b)
		}
	}
}

// TestFleetApplyUnchanged applies by bare names below /fleet/@. If this fails, kubectl apply and diff report a change of
// the name each time.
func TestFleetApplyUnchanged(t *testing.T) {
	k := qualified(t, fleet(t, "{apiVersion: v1, kind: ConfigMap}"))
	d := e2e.Direct("member2")
	e2e.NewNamespace(t, d, "unchanged")
	t.Cleanup(func() { d.Run(t, "delete", "namespace", "unchanged", "--wait=false") })
	const doc = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: alone, namespace: unchanged, annotations: {clusterpass.io/cluster: member2}}, data: {of: first}}\n"
	for _, want := range []string{"created", "unchanged", "unchanged"} {
		e2e.WantText(t, k.WithInput(doc).Must(t, "apply", "-f", "-"), want)
	}
	k.WithInput(doc).Must(t, "diff", "-f", "-")
	changed := strings.Replace(doc, "first", "second", 1)
	if r := k.WithInput(changed).Run(t, "diff", "-f", "-"); r.Code != 1 || strings.Contains(r.Stdout, "@member2") {
		t.Errorf("diff of a change: %v", r)
	}
	e2e.WantText(t, k.WithInput(changed).Must(t, "apply", "-f", "-"), "configured")
	e2e.WantText(t, k.WithInput(changed).Must(t, "apply", "-f", "-"), "unchanged")
}
