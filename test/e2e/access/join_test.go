package access_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestJoin: the gateway's account in the member must only impersonate, and requests reach the member as their caller.
func TestJoin(t *testing.T) {
	run := func(args ...string) string {
		t.Helper()
		out, err := e2e.CLI(t, "", args...)
		if err != nil {
			t.Fatalf("clusterpass %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	out := run("cluster", "join", "joined", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context", "member2",
		"--label", "by=join")
	t.Cleanup(func() { run("cluster", "remove", "joined") })
	if !strings.Contains(out, `cluster "joined" is registered`) || !strings.Contains(out, "identity impersonate") ||
		!strings.Contains(out, "  groups:                  any, including system:masters\n") ||
		!strings.Contains(out, "So anyone with its token is cluster-admin.") {
		t.Error(out)
	}
	run("cluster", "join", "joined", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context", "member2", "--replace")

	a, account := accountOf(t, filepath.Join(e2e.Shared(t).Dir, "data"), "joined")
	for _, tt := range []struct {
		may                                          bool
		verb, group, resource, sub, namespace, named string
	}{
		{true, "impersonate", "", "users", "", "", "anybody"},
		{true, "impersonate", "", "groups", "", "", "system:masters"},
		{true, "impersonate", "", "serviceaccounts", "", "default", "default"},
		{true, "impersonate", "authentication.k8s.io", "userextras", "anything", "", "x"},
		{true, "impersonate", "authentication.k8s.io", "uids", "", "", "x"},
		{true, "create", "", "serviceaccounts", "token", "clusterpass-system", account},
		{false, "create", "", "serviceaccounts", "token", "clusterpass-system", "default"},
		{false, "create", "", "serviceaccounts", "token", "default", account},
		{false, "list", "", "pods", "", "", ""},
		{false, "get", "", "secrets", "", "clusterpass-system", ""},
		{false, "impersonate", "example.com", "users", "", "", ""},
		{false, "*", "*", "*", "", "", ""},
	} {
		isAllowed := func() bool { return canI(t, a, tt.verb, tt.group, tt.resource, tt.sub, tt.namespace, tt.named) }
		if tt.may {
			// A new right applies after a moment.
			waittest.Until(t, fmt.Sprintf("%+v is allowed", tt), isAllowed)
		} else if isAllowed() {
			t.Errorf("%+v: allowed", tt)
		}
	}
	client, root := e2e.Caller(t)
	resp, err := client.Get(root + "/clusters/joined/api/v1/namespaces")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("through the gateway: %s", resp.Status)
	}
}

// TestJoinByTwoGateways: one gateway must not change the rights of the other's account.
func TestJoinByTwoGateways(t *testing.T) {
	accounts := map[string]e2e.Kubectl{}
	names := map[string]string{}
	for _, group := range []string{"dev", "ops"} {
		data := t.TempDir()
		out, err := e2e.CLI(t, "", "cluster", "join", "shared", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context",
			"member2", "--group", group, "--store", "dir:"+data)
		if err != nil {
			t.Fatalf("%s%v", out, err)
		}
		e2e.NoteFiles(data)
		accounts[group], names[group] = accountOf(t, data, "shared")
	}
	if names["dev"] == names["ops"] {
		t.Errorf("both have the account %s", names["dev"])
	}
	for ownGroup, a := range accounts {
		for group := range accounts {
			isAllowed := func() bool { return canI(t, a, "impersonate", "", "groups", "", "", group) }
			if group == ownGroup {
				waittest.Until(t, "account for "+ownGroup+" may impersonate "+group, isAllowed)
			} else if isAllowed() {
				t.Errorf("the account for %s may impersonate %s", ownGroup, group)
			}
		}
	}
}

// TestJoinForSomeGroups: such a cluster refuses the owner of the gateway, who is in system:masters. kubectl must print
// the meaning and the command that helps, also in discovery.
func TestJoinForSomeGroups(t *testing.T) {
	_ = e2e.Shared(t)
	out, err := e2e.CLI(t, "", "cluster", "join", "narrow", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context",
		"member2", "--group", "dev")
	if err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "narrow") })
	if !strings.Contains(out, "  groups:                  dev\n") || strings.Contains(out, "cluster-admin") {
		t.Error(out)
	}
	if out, err := e2e.CLI(t, e2e.GrantYAML("narrow", "ann"), "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, e2e.GrantYAML("narrow", "ann"), "delete", "-f", "-") })
	d := e2e.Direct("member2")
	d.Must(t, "create", "clusterrolebinding", "narrow", "--clusterrole=view", "--user=ann")
	t.Cleanup(func() { d.Run(t, "delete", "clusterrolebinding", "narrow") })
	k := e2e.OwnAPI(t)
	root := "https://" + e2e.HostOf(t, k.Kubeconfig)
	const why = ` of the groups ["system:masters"]: `
	const do = `call it as a user of another group (--as, --as-group); the cluster was joined for other groups, `
	for _, server := range []string{root + "/clusters/narrow", root + "/bridge/clusters/narrow"} {
		k.Server = server
		r := k.Run(t, "get", "configmaps", "-n", "default") // begins with discovery
		for line := range strings.Lines(r.Stderr) {
			if text := strings.ReplaceAll(line, `\`, ""); !strings.Contains(text, why) || !strings.Contains(text, do) {
				t.Errorf("no reason in: %s", line)
			}
		}
		if r.Code != 1 {
			t.Error(r)
		}
		k.MustEventually(t, "get", "configmaps", "-n", "default", "--as", "ann", "--as-group", "dev")
	}
	r := e2e.OwnAPI(t).Run(t, "get", "--raw", "/clusters/narrow/api/v1/namespaces")
	if r.Code != 1 || !strings.Contains(r.Stderr, `(Forbidden): cluster "narrow" does not let`) ||
		!strings.Contains(r.Stderr, do) {
		t.Error(r)
	}
}

// accountOf returns kubectl with join's account in member2, and the account's name.
func accountOf(t *testing.T, data, cluster string) (e2e.Kubectl, string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "secrets", "clusters", cluster+".*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("secrets of the cluster: %v, %v", files, err)
	}
	stored, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account")
	if err := os.WriteFile(file, stored, 0o600); err != nil {
		t.Fatal(err)
	}
	k := e2e.Kubectl{Kubeconfig: file, Context: "member2"}
	const prefix = "system:serviceaccount:clusterpass-system:"
	name, ok := strings.CutPrefix(k.Must(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"), prefix)
	if !ok || !strings.HasPrefix(name, "clusterpass-"+cluster+"-") {
		t.Errorf("the account is %s", name)
	}
	return k, name
}

func canI(t *testing.T, k e2e.Kubectl, verb, group, resource, subresource, namespace, name string) bool {
	t.Helper()
	k.Stdin = strings.NewReader(
		fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":
		{"verb":%q,"group":%q,"resource":%q,"subresource":%q,"namespace":%q,"name":%q}}}`, verb, group, resource, subresource,
			namespace, name))
	return k.Must(t, "create", "--validate=false", "-f", "-", "-o", "jsonpath={.status.allowed}") == "true"
}
