package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// bareRefused is in the error of every write that names no cluster.
const bareRefused = "by its name alone is refused"

func manifestDocs(namespace, annotations string) (configMap, deployment string) {
	metadata := func(name string) string {
		return "metadata: {name: " + name + ", namespace: " + namespace + ", annotations: {" + annotations + "}}"
	}
	return "---\n{apiVersion: v1, kind: ConfigMap, " + metadata("settings") + ", data: {of: manifest}}\n",
		"---\n{apiVersion: apps/v1, kind: Deployment, " + metadata("web") + ", spec: {replicas: 0, " +
			"selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, " +
			"spec: {containers: [{name: web, image: one}]}}}}\n"
}

const (
	ofMember1        = "a ConfigMap of member1"
	changedOfMember1 = "a changed ConfigMap of member1"
	ofNone           = "a ConfigMap"
	workload         = "a Deployment of member1"
	immutable        = "a Deployment with another selector"
)

// manifestCommands must not change member2. DIR is a kustomization, and NAMESPACE the namespace of the test.
var manifestCommands = []struct{ name, command, stdin, says string }{
	{"delete", "delete -f -", ofMember1, bareRefused},
	{"delete of a kustomization", "delete -k DIR", "", bareRefused},
	{"delete by a bare name", "delete configmap settings -n NAMESPACE", "", bareRefused},
	{
		"delete --raw", "delete --raw " + e2e.FleetPrefix + "/api/v1/namespaces/NAMESPACE/configmaps/settings", "",
		bareRefused,
	},
	{"replace", "replace -f -", ofMember1, `its annotations name cluster "member1"`},
	{"replace --force", "replace --force -f -", ofMember1, bareRefused},
	{"replace --force without an annotation", "replace --force -f -", ofNone, bareRefused},
	{
		"apply", "apply -f -", changedOfMember1,
		`its annotations name cluster "member1"`,
	},
	{
		"apply --force of what is immutable", "apply --force -f -",
		immutable, bareRefused,
	},
	{"patch", `patch -p {"data":{"of":"patched"}} -f -`, ofMember1, bareRefused},
	{"label", "label note=yes -f -", ofMember1, bareRefused},
	{"annotate", "annotate note=yes -f -", ofMember1, bareRefused},
	{"edit", "edit -f -", ofMember1, bareRefused},
	{"scale", "scale --replicas=1 -f -", workload, bareRefused},
	{"set image", "set image web=two -f -", workload, bareRefused},
	{"set env", "set env A=B -f -", workload, bareRefused},
	{"rollout restart", "rollout restart -f -", workload, bareRefused},
	{"rollout pause", "rollout pause -f -", workload, bareRefused},
	{"label by a bare name", "label configmap settings note=yes -n NAMESPACE", "", bareRefused},
}

// TestFleetManifestOfAnotherCluster: a manifest that names member1 must not delete or change member2's objects of the
// same names.
func TestFleetManifestOfAnotherCluster(t *testing.T) {
	k := fleet(t, `{apiVersion: v1, kind: ConfigMap}, {apiVersion: apps/v1, kind: "*"}`)
	ns := e2e.NewNamespace(t, e2e.Members...)
	configMap, deployment := manifestDocs(ns, "")
	e2e.Direct("member2").Apply(t, configMap+deployment)
	waittest.Until(t, "the fleet has the Deployment", func() bool {
		return k.Run(t, "get", "deployment", "web", "-n", ns).Code == 0
	})
	// The controller of Deployments writes, too, so the state has no resourceVersion.
	state := func() string {
		const fields = "{.metadata.uid} {.metadata.labels} {.metadata.annotations.note} {.data} {.spec} " +
			"{.metadata.deletionTimestamp}"
		return e2e.Direct("member2").Must(t, "get", "configmap/settings", "deployment/web", "-n", ns,
			"-o", "jsonpath={range .items[*]}"+fields+`{"\n"}{end}`)
	}
	before := state()
	configMap, deployment = manifestDocs(ns, "clusterpass.io/cluster: member1")
	plainMap, plain := manifestDocs(ns, "")
	stdin := map[string]string{
		ofMember1: configMap, changedOfMember1: strings.Replace(configMap, "of: manifest", "of: changed", 1),
		ofNone:   plainMap,
		workload: deployment, immutable: strings.ReplaceAll(plain, "app: web", "app: other"),
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"configmap.yaml": configMap, "kustomization.yaml": "resources: [configmap.yaml]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range manifestCommands {
		t.Run(tt.name, func(t *testing.T) {
			for form, k := range map[string]e2e.Kubectl{"fleet": k, "fleet/@": qualified(t, k)} {
				k.Env = []string{`KUBE_EDITOR=sed -i s/of:.*/of:\ edited/`}
				command := strings.NewReplacer("DIR", dir, "NAMESPACE", ns).Replace(tt.command)
				r := k.WithInput(stdin[tt.stdin]).Run(t, strings.Fields(command)...)
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
		got := e2e.Direct("member1").Must(t, "get", "configmap", "settings", "-n", ns, "-o", "jsonpath={.data.of}")
		if got != "manifest" {
			t.Errorf("member1 has %q", got)
		}
	})
	t.Run("the forms that an error names", func(t *testing.T) {
		in := func(name string) string { return strings.Replace(configMap, "name: settings", "name: "+name, 1) }
		k.WithInput(in("settings@member1")).Must(t, "delete", "-f", "-", "--timeout=4m")
		k.Must(t, "label", "configmap", "settings", "note=yes", "-n", ns+"@member2")
		k.Must(t, "delete", "configmap", "settings", "-n", ns+"@member2", "--timeout=4m")
		if r := k.Run(t, "delete", "configmap", "settings", "-n", ns); !strings.Contains(r.Stderr, "(NotFound)") {
			t.Errorf("deleted in both clusters: %v", r)
		}
		k.Must(t, "delete", "configmap", "settings", "-n", ns, "--ignore-not-found")
	})
}

// TestFleetDeleteBySelector: kubectl delete -l must delete every listed object, also where names are equal, and must
// end.
func TestFleetDeleteBySelector(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	ns := e2e.NewNamespace(t, e2e.Members...)
	for _, m := range e2e.Members {
		d := e2e.Direct(m)
		for _, name := range []string{"same", "alone-" + m, "stays"} {
			const doc = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {stays: %q}}}"
			d.Apply(t, fmt.Sprintf(doc, name, ns, fmt.Sprint(name == "stays")))
		}
	}
	e2e.WantText(t, k.Must(t, "delete", "configmaps", "-l", "stays=false", "-n", ns, "--timeout=4m"),
		`"same@member1"`, `"same@member2"`, `"alone-member1@member1"`, `"alone-member2@member2"`)
	for _, m := range e2e.Members {
		got := e2e.Direct(m).Must(t, "get", "configmaps", "-l", "stays", "-n", ns, "-o", "name")
		if got != "configmap/stays\n" {
			t.Errorf("%s has %q", m, got)
		}
	}
	k.Must(t, "delete", "configmaps", "-l", "stays", "-n", ns+"@member1", "--timeout=4m")
	got := k.Must(t, "get", "configmaps", "-l", "stays", "-n", ns,
		"-o", "jsonpath={.items[*].metadata.annotations}")
	if !strings.Contains(got, "member2") || strings.Contains(got, "member1") {
		t.Errorf("deleted in a namespace of member1, there are %s", got)
	}
}

// TestFleetPrune: kubectl apply --prune in one cluster must not delete other clusters' objects.
func TestFleetPrune(t *testing.T) {
	k := fleet(t, "{apiVersion: v1, kind: ConfigMap}")
	doc := func(name string) string {
		return "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", labels: {app: pruned}}}\n"
	}
	ns := e2e.NewNamespace(t, e2e.Members...)
	has := func(m string) string {
		names := e2e.Direct(m).Must(t, "get", "configmaps", "-n", ns, "-l", "app", "-o", "name")
		return strings.Join(strings.Fields(names), " ")
	}
	for form, k := range map[string]e2e.Kubectl{"fleet": k, "fleet/@": qualified(t, k)} {
		for _, m := range e2e.Members {
			e2e.Direct(m).WithInput(doc("keeps")+doc("goes")).Must(t, "apply", "-n", ns, "-f", "-")
		}
		prune := []string{"apply", "--prune", "-l", "app=pruned", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"}
		r := k.WithInput(doc("keeps@member1")).Run(t, append(prune, "-n", ns)...)
		if r.Code == 0 || !strings.Contains(r.Stderr, "listing configmaps is refused: kubectl apply --prune") {
			t.Errorf("%s: in all clusters: %v", form, r)
		}
		const both = "configmap/goes configmap/keeps"
		if a, b := has("member1"), has("member2"); a != both || b != both {
			t.Fatalf("%s: after a refusal member1 has %s, member2 %s", form, a, b)
		}
		r = k.WithInput(doc("keeps")).Run(t, append(prune, "-n", ns+"@member1")...)
		if a, b := has("member1"), has("member2"); r.Code != 0 || a != "configmap/keeps" || b != both {
			t.Errorf("%s: in a namespace of member1: %v\nmember1 has %s, member2 %s", form, r, a, b)
		}
	}
}

// TestFleetApplyUnchanged: kubectl apply and diff must not report a changed name each time.
func TestFleetApplyUnchanged(t *testing.T) {
	k := qualified(t, fleet(t, "{apiVersion: v1, kind: ConfigMap}"))
	doc := "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: alone, " +
		"namespace: " + e2e.NewNamespace(t, "member2") + ", " +
		"annotations: {clusterpass.io/cluster: member2}}, data: {of: first}}\n"
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
