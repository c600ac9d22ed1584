package e2e

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// GrantYAML returns a role and a binding with which a user may call a cluster with every verb.
func GrantYAML(cluster, user string) string {
	return strings.NewReplacer("USER", user, "CLUSTER", cluster).Replace(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: USER-CLUSTER}
rules:
- {apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [CLUSTER], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: USER-CLUSTER}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: USER-CLUSTER}
subjects: [{kind: User, name: USER}]
`)
}

// Grant makes a user administrator of a cluster, at the gateway and in the cluster, until the test ends.
func Grant(t *testing.T, cluster, user string) {
	t.Helper()
	if out, err := CLI(t, GrantYAML(cluster, user), "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = CLI(t, GrantYAML(cluster, user), "delete", "-f", "-") })
	d := Direct(cluster)
	d.Must(t, "create", "clusterrolebinding", user, "--clusterrole=cluster-admin", "--user="+user)
	t.Cleanup(func() { d.Run(t, "delete", "clusterrolebinding", user) })
	waitForAdmin(t, d, user)
}

func waitForAdmin(t *testing.T, member Kubectl, user string) {
	t.Helper()
	waittest.Until(t, user+" is administrator of "+member.Context, func() bool {
		return member.Run(t, "auth", "can-i", "*", "*", "--as", user).Code == 0
	})
}
