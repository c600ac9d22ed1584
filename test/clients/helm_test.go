package clients

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/clusterpass/clusterpass/test/clients/programs"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestHelm: a release must pass through its life, and an upgrade must not delete what it has just applied.
func TestHelm(t *testing.T) {
	chart, err := filepath.Abs("testdata/chart")
	if err != nil {
		t.Fatal(err)
	}
	ns := e2e.NewNamespace(t, e2e.Members...)
	coverEverything(t)
	for _, p := range places {
		t.Run(p.context, func(t *testing.T) {
			env, release, namespace := environment(t), "shop-"+p.suffix(), ns+p.namespace+p.name
			helm := func(args ...string) string {
				t.Helper()
				return must(t, env, built.Path(programs.Helm), append([]string{"--kube-context", p.context,
					"--namespace", namespace}, args...)...)
			}
			text := func(want string) {
				t.Helper()
				d := e2e.Direct("member1")
				if got := d.Must(t, "-n", ns, "get", "configmap", release+"-settings", "-o", "jsonpath={.data.text}"); got != want {
					t.Fatalf("the cluster has %q, want %q", got, want)
				}
				d.Must(t, "-n", ns, "rollout", "status", "deployment", release+"-web", "--timeout=4m")
			}
			helm("install", release, chart, "--wait", "--timeout", "4m")
			text("first")
			// An object without a namespace can name no cluster on the fleet.
			helm("upgrade", release, chart, "--set", "text=second", "--set", fmt.Sprintf("nodes=%t", namespace == ns), "--wait",
				"--timeout", "4m")
			text("second")
			e2e.WantText(t, helm("list"), release, "deployed", "shop-1.0.0")
			e2e.WantText(t, helm("status", release), "STATUS: deployed", "REVISION: 2")
			e2e.WantText(t, helm("get", "all", release), "text: second", "kind: Deployment")
			e2e.WantText(t, helm("history", release), "superseded", "Upgrade complete")
			e2e.WantText(t, helm("test", release, "--logs", "--timeout", "4m"), "Phase:          Succeeded", "checked second")
			helm("rollback", release, "1", "--wait", "--timeout", "4m")
			text("first")
			if other := e2e.Direct("member2").Must(t, "-n", ns, "get", "deployments,secrets", "-o", "name"); other != "" {
				t.Errorf("helm has created in member2:\n%s", other)
			}
			helm("uninstall", release, "--wait", "--timeout", "4m")
			if left := e2e.Direct("member1").Must(t, "-n", ns, "get", "deployments,configmaps,secrets", "-o", "name"); left !=
				"configmap/kube-root-ca.crt\n" {
				t.Errorf("helm has left:\n%s", left)
			}
		})
	}
}
