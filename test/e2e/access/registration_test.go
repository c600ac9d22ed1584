package access_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

const limitedRBAC = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: RULES
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: NAME}]
`

// TestCredentialsThatCannotWork: cluster add must not store a cluster whose requests all fail.
func TestCredentialsThatCannotWork(t *testing.T) {
	// The default of API servers: a request without a valid credential is anonymous and may read the version.
	member := cluster.Start(t, cluster.Options{Clusters: []string{"member5"}, NoKubelet: true,
		APIServerArgs: []string{"--anonymous-auth=true"}}).Cluster("member5")
	admin := e2e.Kubectl{Kubeconfig: member.KubeconfigFile(), Context: "member5"}
	rule := func(group, resource string, names ...string) string {
		b, err := json.Marshal(map[string]any{"apiGroups": []string{group}, "resources": []string{resource},
			"verbs": []string{"impersonate"}, "resourceNames": names})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	users, groups, accounts := rule("", "users"), rule("", "groups"), rule("", "serviceaccounts")
	more := rule("authentication.k8s.io", "*")
	for i, tt := range []struct {
		name     string
		rules    []string
		user     *clientcmdapi.AuthInfo // replaces the user with these rules
		identity string
		want     string
	}{
		{"basic authentication", nil, &clientcmdapi.AuthInfo{Username: "admin", Password: "correct-horse-battery"}, "direct",
			"the caller is anonymous"},
		{"an unknown token", nil, &clientcmdapi.AuthInfo{Token: "not-a-token-of-this-cluster"}, "direct",
			"refuses the credential (401)"},
		{"nothing granted", nil, nil, "impersonate",
			"may not impersonate users, groups, serviceaccounts, uids in authentication.k8s.io"},
		{"nothing granted, direct", nil, nil, "direct", ""},
		{"users only", []string{users}, nil, "impersonate", "may not impersonate groups, serviceaccounts"},
		{"no groups", []string{users, accounts, more}, nil, "impersonate", "may not impersonate groups;"},
		{"some groups", []string{users, accounts, more, rule("", "groups", "dev")}, nil, "impersonate", ""},
		{"no extras", []string{users, groups, accounts, rule("authentication.k8s.io", "uids")}, nil, "impersonate",
			"may not impersonate userextras/arn"},
		{"everything", []string{users, groups, accounts, more}, nil, "impersonate", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := fmt.Sprintf("limited-%d", i)
			kubeconfig, err := member.UserKubeconfig(name)
			if err != nil {
				t.Fatal(err)
			}
			if tt.user != nil {
				kc, err := clientcmd.Load(kubeconfig)
				if err != nil {
					t.Fatal(err)
				}
				for user := range kc.AuthInfos {
					kc.AuthInfos[user] = tt.user
				}
				if kubeconfig, err = clientcmd.Write(*kc); err != nil {
					t.Fatal(err)
				}
			}
			e2e.Secrets.Document(tt.name, kubeconfig)
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
				t.Fatal(err)
			}
			k := admin
			k.Stdin = strings.NewReader(strings.NewReplacer("NAME", name, "RULES", "["+strings.Join(tt.rules, ",")+
				"]").Replace(limitedRBAC))
			k.Must(t, "apply", "-f", "-")
			if len(tt.rules) > 0 { // each list has the first rule, and all rules apply together
				waittest.Until(t, name+" may impersonate", func() bool {
					return admin.Run(t, "auth", "can-i", "impersonate", "users", "--as", name).Code == 0
				})
			}
			out, err := e2e.CLI(t, "", "cluster", "add", name, "--kubeconfig", file, "--identity", tt.identity, "--direct-user",
				"nobody")
			if tt.want == "" && err == nil {
				_, _ = e2e.CLI(t, "", "cluster", "remove", name)
			}
			if (err == nil) != (tt.want == "") || !strings.Contains(out, tt.want) {
				t.Errorf("%s%v, want %q", out, err, tt.want)
			}
			if shown, err := e2e.CLI(t, "", "cluster", "show", name); err == nil {
				t.Errorf("it is there: %s", shown)
			}
		})
	}
}
