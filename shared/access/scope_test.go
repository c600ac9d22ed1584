package access

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
)

func compileScoped() *Policy {
	return Compile(
		[]*rbacv1.ClusterRole{
			newRole("dev", rule("get,create,list", ClusterGroup, "clusters/proxy,clusters", "member1", "member2")),
		},
		[]*rbacv1.ClusterRoleBinding{bind("dev", "dev", user("ann"))},
	)
}

func limited(u identity.User, clusters, verbs string) *identity.User {
	u.Scope = &identity.Scope{Clusters: strings.Split(clusters, ","), Verbs: strings.Split(verbs, ",")}
	return &u
}

func TestScope(t *testing.T) {
	p := compileScoped()
	ann, root := identity.User{Name: "ann"}, identity.User{Name: "root", Groups: []string{Masters}}
	resource := func(verb, group, resource, name string) Attributes {
		return Attributes{Verb: verb, APIGroup: group, Resource: resource, Name: name}
	}
	upgrade := map[string][]string{"Upgrade": {"websocket"}}
	for _, tt := range []struct {
		name string
		user *identity.User
		a    Attributes
		want bool
	}{
		{"both", limited(ann, "member1", "get"), Cluster("member1", "GET", nil), true},
		{"not the pass: cluster", limited(ann, "member1", "get"), Cluster("member2", "GET", nil), false},
		{"not the pass: verb", limited(ann, "member1", "get"), Cluster("member1", "POST", nil), false},
		{"not the pass: upgrade", limited(ann, "member1", "get"), Cluster("member1", "GET", upgrade), false},
		{"not RBAC: cluster", limited(ann, "member3", "get"), Cluster("member3", "GET", nil), false},
		{"not RBAC: verb", limited(ann, "member1", "*"), Cluster("member1", "DELETE", nil), false},
		{"all clusters of theirs", limited(ann, "*", "get"), Cluster("member2", "GET", nil), true},
		{"all clusters are not all", limited(ann, "*", "get"), Cluster("member3", "GET", nil), false},
		{"a name that is only like it", limited(root, "member1", "get"), Cluster("member10", "GET", nil), false},
		{"a method without a verb", limited(root, "member1", "get"), Cluster("member1", "BREW", nil), false},
		{"an empty name", limited(root, "member1", "get"), Cluster("", "GET", nil), false},
		{"a master's, inside", limited(root, "member1", "get"), Cluster("member1", "GET", nil), true},
		{"a master's, outside", limited(root, "member1", "get"), Cluster("member2", "GET", nil), false},
		{
			"reads its cluster's object", limited(root, "member1", "get"), resource("get", ClusterGroup, "clusters", "member1"),
			true,
		},
		{"lists no clusters", limited(root, "member1", "get"), resource("list", ClusterGroup, "clusters", ""), false},
		{"lists clusters", limited(root, "*", "get"), resource("list", ClusterGroup, "clusters", ""), true},
		{
			"changes no cluster", limited(root, "*", "get,update"), resource("update", ClusterGroup, "clusters", "member1"),
			false,
		},
		{
			"no status of one", limited(root, "*", "get,update"),
			Attributes{Verb: "update", APIGroup: ClusterGroup, Resource: "clusters", Subresource: "status", Name: "member1"},
			false,
		},
		{"the same in another group", limited(root, "member1", "get"), resource("get", "x", "clusters", "member1"), false},
		{"creates no pass", limited(root, "*", "get,create"), resource("create", "clusterpass.io", "passes", "x"), false},
		{
			"binds no role", limited(root, "*", "get,create"), resource("create", rbacv1.GroupName, "clusterrolebindings", "x"),
			false,
		},
		{"impersonates nobody", limited(root, "*", "get"), resource("impersonate", "", "users", "root"), false},
		{
			"asks about itself", limited(root, "member1", "get"),
			resource("create", "authorization.k8s.io", "selfsubjectaccessreviews", ""), true,
		},
		{
			"asks about no other", limited(root, "member1", "get"),
			resource("create", "authorization.k8s.io", "subjectaccessreviews", ""), false,
		},
		{"reads what is no resource", limited(root, "member1", "get"), Attributes{Verb: "get", Path: "/version"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, reason := p.Allowed(tt.user, tt.a)
			if got != tt.want {
				t.Errorf("allowed %v: %s", got, reason)
			}
			if strings.HasPrefix(tt.name, "not the pass") &&
				reason != `the pass is limited to clusters ["member1"] and verbs ["get"]` {
				t.Errorf("reason %q", reason)
			}
		})
	}
}

// A limited pass of a master must not be able to give its rights to others.
func TestScopedPassGrantsNothing(t *testing.T) {
	p := compileScoped()
	root := identity.User{Name: "root", Groups: []string{Masters}}
	one := limited(root, "*", "get,create")
	if rules := p.Rules(one); len(rules) > 0 || IsMaster(one) {
		t.Errorf("a limited pass can give away %v", rules)
	}
	if err := p.MayWriteBinding(one, bind("x", "dev", user("eve"))); err == nil {
		t.Error("a limited pass binds a role")
	}
	if err := p.MayWriteRole(one, newRole("x", rule("get", ClusterGroup, "clusters", "")), nil); err == nil {
		t.Error("a limited pass writes a role")
	}
}
