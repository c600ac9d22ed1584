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
	if !strings.Contains(out, `cluster "joined" is registered`) || !strings.Contains(out, "identity impersonate") {
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
