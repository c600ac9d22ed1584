package clients

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/clients/programs"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestHelmLimits: docs/reference/clients.md names these limits of helm on the fleet. A refused command must change no
// object of either cluster.
func TestHelmLimits(t *testing.T) {
	chart, err := filepath.Abs("testdata/chart")
	if err != nil {
		t.Fatal(err)
	}
	ns, env := e2e.NewNamespace(t, e2e.Members...), environment(t)
	coverEverything(t)
	for _, cluster := range e2e.Members {
		must(t, env, built.Path(programs.Helm), "--kube-context", cluster, "-n", ns, "install", "both", chart)
	}
	for _, p := range []place{fleet, names} {
		t.Run(p.context, func(t *testing.T) {
			helm := func(args ...string) e2e.Result {
				t.Helper()
				return run(t, env, built.Path(programs.Helm), append([]string{"--kube-context", p.context}, args...)...)
			}
			if list := helm("list", "-A", "-f", "^both$", "--no-headers"); strings.Count(list.Stdout, "\n") != 1 {
				t.Errorf("want one release of each name: %v", list)
			}
			for _, cluster := range e2e.Members {
				e2e.WantText(t, helm("list", "-n", ns+"@"+cluster).Stdout, "both")
			}
			const unnamed = "the request names no cluster"
			for _, refused := range []struct{ args, want string }{
				{"-n " + ns + " install new " + chart, unnamed},
				{"-n " + ns + " upgrade both " + chart, unnamed},
				{"-n " + ns + " uninstall both", "is in 2 clusters"},
				{"-n " + ns + "@member1 install nodes-" + p.suffix() + " " + chart + " --set nodes=true", unnamed},
				// helm remembers the namespace of the installation, which names no cluster.
				{"-n " + ns + "@member1 upgrade both " + chart, "is in 2 clusters"},
			} {
				if r := helm(strings.Fields(refused.args)...); r.Code == 0 || !strings.Contains(r.Stderr, refused.want) {
					t.Errorf("helm %s: %v", refused.args, r)
				}
			}
			for _, cluster := range e2e.Members {
				e2e.Direct(cluster).Must(t, "-n", ns, "get", "deployment/both-web", "configmap/both-settings")
			}
		})
	}
}

// TestSternLimits: with names alone, stern must report that it cannot read pods of the same name.
func TestSternLimits(t *testing.T) {
	ns := e2e.StreamPods(t, e2e.Members, "finite-a")
	coverEverything(t)
	r := run(t, environment(t), built.Path(programs.Stern), "--context", fleet.context, "-n", ns, "--no-follow", "finite")
	if r.Code == 0 || !strings.Contains(r.Stderr, `pods "finite-a" is in 2 clusters`) {
		t.Errorf("stern: %v", r)
	}
}

// TestK9sLimits: with names alone, k9s shows one of two pods of the same name. With /fleet/@ it must show both.
func TestK9sLimits(t *testing.T) {
	ns := e2e.StreamPods(t, e2e.Members, "finite-a", "talker-a")
	coverEverything(t)
	for p, want := range map[place]string{fleet: "pods(" + ns + ")[2]", names: "pods(" + ns + ")[4]"} {
		t.Run(p.context, func(t *testing.T) { startK9s(t, p, ns).WaitFor(want, "finite-a", "talker-a") })
	}
}
