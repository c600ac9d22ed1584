package clients

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestKubectl: the oldest and the newest kubectl of docs/reference/clients.md, and the kubectl of the clusters' own
// version, must read, stream, write and ask for rights.
func TestKubectl(t *testing.T) {
	ns := e2e.StreamPods(t, e2e.Members, "shell", "finite-a")
	coverEverything(t)
	for version, bin := range map[string]string{
		"v1.34": built.OldKubectl, "v1.36": e2e.Clusters.BuiltKubectl(), "v1.37": built.NewKubectl,
	} {
		got := must(t, environment(t), bin, "version", "--client")
		if !strings.HasPrefix(got, "Client Version: "+version+".") {
			t.Errorf("the kubectl of %s is of %s", version, got)
		}
		for _, p := range places {
			t.Run(version+"/"+p.context, func(t *testing.T) {
				kubectlReads(t, bin, p, ns)
				kubectlWrites(t, bin, p, ns)
			})
		}
	}
}

func kubectlReads(t *testing.T, bin string, p place, ns string) {
	t.Helper()
	k, shell := e2e.Kubectl{Kubeconfig: kubeconfig(t), Context: p.context}, "shell"+p.name
	for _, step := range []struct {
		args, stdin string
		want        []string
	}{
		{args: "get pods -A", want: []string{"shell", "finite-a"}},
		{args: "get pods -A -o wide --sort-by=.metadata.name", want: []string{"shell", "member1-node"}},
		{args: "get nodes", want: []string{"member1-node", "Ready"}},
		{args: "get pod " + shell + " -o yaml", want: []string{"name: " + shell, "phase: Running"}},
		{args: "describe pod " + shell, want: []string{"Name:             " + shell, "Status:           Running"}},
		{args: "logs finite-a" + p.name, want: []string{"one\ntwo\nthree\n"}},
		{args: "exec " + shell + " -- echo hello", want: []string{"hello\n"}},
		{args: "exec -i " + shell + " -- cat", stdin: "from here", want: []string{"from here"}},
		{args: "wait pod " + shell + " --for=condition=Ready --timeout=4m", want: []string{"condition met"}},
		{args: "explain pod.spec.containers", want: []string{"KIND:       Pod"}},
		{args: "api-resources --api-group=apps", want: []string{"deployments", "Deployment"}},
		{args: "version", want: []string{"Server Version: v1.36."}},
		{args: "auth can-i create pods", want: []string{"yes"}},
		{args: "auth can-i --list", want: []string{"*.*"}},
		{args: "auth whoami", want: []string{"Username"}},
	} {
		args := append([]string{"-n", ns + p.namespace}, strings.Fields(step.args)...)
		r := k.RunWith(t, bin, strings.NewReader(step.stdin), args...)
		if r.Code != 0 {
			t.Errorf("kubectl %s: %v", step.args, r)
		}
		e2e.WantText(t, r.Stdout, step.want...)
	}
}

func kubectlWrites(t *testing.T, bin string, p place, ns string) {
	t.Helper()
	k := e2e.Kubectl{Kubeconfig: kubeconfig(t), Context: p.context}
	try := func(stdin string, args ...string) e2e.Result {
		t.Helper()
		return k.RunWith(t, bin, strings.NewReader(stdin), append([]string{"-n", ns + p.namespace}, args...)...)
	}
	write := func(want, stdin string, args ...string) {
		t.Helper()
		r := try(stdin, args...)
		if r.Code != 0 {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), r)
		}
		e2e.WantText(t, r.Stdout, want)
	}
	web := "idle" + p.name
	manifest := strings.Replace(e2e.Deployment, "name: idle, labels", "name: "+web+", labels", 1)
	write("created", manifest, "apply", "-f", "-")
	write("unchanged", manifest, "apply", "-f", "-")
	write("serverside-applied", manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
	changed := strings.Replace(manifest, "replicas: 1", "replicas: 2", 1)
	if r := try(changed, "diff", "-f", "-"); r.Code != 1 || !strings.Contains(r.Stdout, "+  replicas: 2") {
		t.Errorf("kubectl diff: %v", r)
	}
	write("successfully rolled out", "", "rollout", "status", "deployment", web, "--timeout=4m")
	write("scaled", "", "scale", "deployment", web, "--replicas=2")
	write("labeled", "", "label", "deployment", web, "team=shop")
	write("patched", "", "patch", "deployment", web, "-p", `{"spec": {"replicas": 1}}`)
	write("restarted", "", "rollout", "restart", "deployment", web)
	write("successfully rolled out", "", "rollout", "status", "deployment", web, "--timeout=4m")
	write("deleted", "", "delete", "deployment", web, "--timeout=4m")
	if r := try("", "get", "deployment", web); !strings.Contains(r.Stderr, "NotFound") {
		t.Errorf("after the deletion: %v", r)
	}
}
