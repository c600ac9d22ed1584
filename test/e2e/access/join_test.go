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

// TestJoin holds: the account that join makes may impersonate and nothing else, and calls reach the member as their caller.
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
	// Twice is once.
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
		asked := func() bool { return may(t, a, tt.verb, tt.group, tt.resource, tt.sub, tt.namespace, tt.named) }
		if tt.may {
			// rights come into force a moment after they were written
			waittest.Until(t, fmt.Sprintf("%+v is allowed", tt), asked)
		} else if asked() {
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

// TestJoinByTwoGateways holds: gateways that share a member do not change what each other's accounts may do there.
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
	for mine, a := range accounts {
		for group := range accounts {
			asked := func() bool { return may(t, a, "impersonate", "", "groups", "", "", group) }
			if group == mine {
				// rights come into force a moment after they were written
				waittest.Until(t, "account for "+mine+" may impersonate "+group, asked)
			} else if asked() {
				t.Errorf("the account for %s may impersonate %s", mine, group)
			}
		}
	}
}

// accountOf is the way of the account that join made for a cluster to its member, member2, and the account's name.
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

// may asks the member whether k may do something.
func may(t *testing.T, k e2e.Kubectl, verb, group, resource, subresource, namespace, name string) bool {
	t.Helper()
	k.Stdin = strings.NewReader(
		fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":
		{"verb":%q,"group":%q,"resource":%q,"subresource":%q,"namespace":%q,"name":%q}}}`, verb, group, resource, subresource,
			namespace, name))
	return k.Must(t, "create", "--validate=false", "-f", "-", "-o", "jsonpath={.status.allowed}") == "true"
}
