package access

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
)

func TestUncovered(t *testing.T) {
	tests := map[string]struct {
		own, given rbacv1.PolicyRule
		want       int // uncovered parts
	}{
		"the same":                      {rule("get,list", "g", "a,b", "x"), rule("get,list", "g", "a,b", "x"), 0},
		"fewer verbs":                   {rule("get,list", "g", "a"), rule("get", "g", "a"), 0},
		"more verbs":                    {rule("get", "g", "a"), rule("get,list,watch", "g", "a"), 2},
		"all verbs":                     {rule("get", "g", "a"), rule("*", "g", "a"), 1},
		"all groups":                    {rule("get", "g", "a"), rule("get", "*", "a"), 1},
		"all resources":                 {rule("get", "g", "a"), rule("get", "g", "*"), 1},
		"of all":                        {rule("*", "*", "*"), rule("get", "g", "a/b", "x"), 0},
		"all of all":                    {rule("*", "*", "*"), rule("*", "*", "*"), 0},
		"a name of all names":           {rule("get", "g", "a"), rule("get", "g", "a", "x"), 0},
		"all names of one":              {rule("get", "g", "a", "x"), rule("get", "g", "a"), 1},
		"all names of the empty one":    {rule("get", "g", "a", ""), rule("get", "g", "a"), 1},
		"a subresource of the resource": {rule("get", "g", "a"), rule("get", "g", "a/b"), 1},
		"a subresource of any":          {rule("get", "g", "*/b"), rule("get", "g", "a/b,*/b"), 0},
		"any's of a subresource":        {rule("get", "g", "a/b"), rule("get", "g", "*/b"), 1},
		"an odd resource":               {rule("get", "g", "a"), rule("get", "g", "a/"), 1},
		"a path":                        {urls("get", "/a*"), urls("get", "/a", "/ab", "/ab*", "/b", "*"), 2},
		"all paths":                     {urls("get", "*"), urls("get", "/a", "*"), 0},
		"paths are no resources":        {rule("*", "*", "*"), urls("get", "/a"), 1},
		"resources are no paths":        {urls("*", "*"), rule("get", "g", "a"), 1},
		"without verb": {
			rule("*", "*", "*"), rbacv1.PolicyRule{APIGroups: []string{"g"}, Resources: []string{"a"}}, 1,
		},
		"without group": {rule("*", "*", "*"), rbacv1.PolicyRule{Verbs: []string{"get"}, Resources: []string{"a"}}, 1},
		"nothing":       {rule("*", "*", "*"), rbacv1.PolicyRule{}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Compile([]*rbacv1.ClusterRole{newRole("r", tt.own)}, []*rbacv1.ClusterRoleBinding{bind("b", "r", user("ann"))})
			if got := p.Uncovered(&identity.User{Name: "ann"}, []rbacv1.PolicyRule{tt.given}); len(got) != tt.want {
				t.Errorf("got %v, want %d", got, tt.want)
			}
			if got := p.Uncovered(&identity.User{Name: "bob"}, []rbacv1.PolicyRule{tt.given}); len(got) == 0 {
				t.Error("who has nothing covers it")
			}
			if got := p.Uncovered(&identity.User{Name: "root", Groups: []string{Masters}},
				[]rbacv1.PolicyRule{tt.given}); got != nil {
				t.Errorf("a master lacks %v", got)
			}
		})
	}
}

func mayNotGrantSecrets(resource, name, user string) string {
	return fmt.Sprintf("%s.rbac.authorization.k8s.io %q is forbidden: user %q (groups=[]) is attempting to grant RBAC "+
		"permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}", resource, name, user)
}

func TestMayWrite(t *testing.T) {
	secret := rule("get", "", "secrets")
	aggregated := newRole("all")
	aggregated.AggregationRule = &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "all"}}},
	}
	part := newRole("part", secret)
	part.Labels = map[string]string{"to": "all"}
	p := Compile([]*rbacv1.ClusterRole{
		newRole("pods", rule("get", "", "pods")), newRole("secrets", secret), aggregated, part, newRole("empty"),
		newRole("escalator", rule("escalate", rbacv1.GroupName, "clusterroles", "target")),
		newRole("binder", rule("bind", rbacv1.GroupName, "clusterroles", "secrets", "gone")),
		newRole("admin", everything...),
	}, []*rbacv1.ClusterRoleBinding{
		bind("1", "pods", user("ann")), bind("2", "escalator", user("esc")), bind("3", "binder", user("bin")),
		bind("4", "admin", user("adm")), bind("5", "secrets", user("sec")),
	})
	for name, tt := range map[string]struct {
		user      string
		role, old *rbacv1.ClusterRole
		binding   *rbacv1.ClusterRoleBinding
		want      string
	}{
		"a role of what one has": {user: "ann", role: newRole("target", rule("get", "", "pods"))},
		"a role of more": {
			user: "ann", role: newRole("target", secret), want: mayNotGrantSecrets("clusterroles", "target", "ann"),
		},
		"a role by escalate": {user: "esc", role: newRole("target", secret), old: newRole("target", secret)},
		"a new role by escalate of its name": {
			user: "esc", role: newRole("target", secret), want: mayNotGrantSecrets("clusterroles", "target", "esc"),
		},
		"another role by escalate": {
			user: "esc", role: newRole("other", secret), old: newRole("other", secret),
			want: mayNotGrantSecrets("clusterroles", "other", "esc"),
		},
		"an aggregation": {
			user: "ann", role: aggregated,
			want: `clusterroles.rbac.authorization.k8s.io "all" is forbidden: must have cluster-admin privileges to use the ` +
				`aggregationRule`,
		},
		"the end of one": {
			user: "ann", role: newRole("all"), old: aggregated,
			want: `clusterroles.rbac.authorization.k8s.io "all" is forbidden: must have cluster-admin privileges to use the ` +
				`aggregationRule`,
		},
		"an aggregation by an admin": {user: "adm", role: aggregated, old: aggregated},
		"a binding of what one has":  {user: "ann", binding: bind("b", "pods", user("x"))},
		"a binding of more": {
			user: "ann", binding: bind("b", "secrets", user("x")),
			want: mayNotGrantSecrets("clusterrolebindings", "b", "ann"),
		},
		"a binding of an aggregation": {
			user: "ann", binding: bind("b", "all", user("x")),
			want: mayNotGrantSecrets("clusterrolebindings", "b", "ann"),
		},
		"of one that one covers":       {user: "sec", binding: bind("b", "all", user("x"))},
		"a binding by bind":            {user: "bin", binding: bind("b", "secrets", user("x"))},
		"a binding of nothing by bind": {user: "bin", binding: bind("b", "gone", user("x"))},
		"a binding of nothing": {
			user: "ann", binding: bind("b", "gone", user("x")),
			want: `clusterrolebindings.rbac.authorization.k8s.io "b" is forbidden: clusterrole.rbac.authorization.k8s.io ` +
				`"gone" not found`,
		},
		"an empty role": {user: "ann", binding: bind("b", "empty", user("x"))},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			if u := (&identity.User{Name: tt.user}); tt.role != nil {
				err = p.MayWriteRole(u, tt.role, tt.old)
			} else {
				err = p.MayWriteBinding(u, tt.binding)
			}
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
