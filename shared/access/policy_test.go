package access

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// seed is the grant of Karmada's documentation.
const seed = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: cluster-proxy-clusterrole
rules:
- apiGroups: ['cluster.karmada.io']
  resources: [clusters/proxy]
  resourceNames: [member1, member2, member3]
  verbs: ['*']
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: cluster-proxy-clusterrolebinding
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: cluster-proxy-clusterrole
subjects:
- kind: User
  name: "system:admin"
`

func parse(t testing.TB, text string) *Policy {
	t.Helper()
	var roles []*rbacv1.ClusterRole
	var bindings []*rbacv1.ClusterRoleBinding
	for _, doc := range strings.Split(text, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		var err error
		switch meta.Kind {
		case "ClusterRole":
			r := &rbacv1.ClusterRole{}
			err = yaml.UnmarshalStrict([]byte(doc), r)
			roles = append(roles, r)
		case "ClusterRoleBinding":
			b := &rbacv1.ClusterRoleBinding{}
			err = yaml.UnmarshalStrict([]byte(doc), b)
			bindings = append(bindings, b)
		default:
			t.Fatalf("kind %q", meta.Kind)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Compile(roles, bindings)
}

func newRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func bind(name, to string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: to}}
}

func user(name string) rbacv1.Subject  { return rbacv1.Subject{Kind: "User", Name: name} }
func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "Group", Name: name} }

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: strings.Split(groups, ","),
		Resources: strings.Split(resources, ","), ResourceNames: names}
}

func urls(verbs string, paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), NonResourceURLs: paths}
}

var admin = &identity.User{Name: "system:admin"}

func TestSeed(t *testing.T) {
	p := parse(t, seed)
	ok, reason := p.Allowed(admin, Cluster("member1", "GET", nil))
	if want := `RBAC: allowed by ClusterRoleBinding "cluster-proxy-clusterrolebinding" of ClusterRole ` +
		`"cluster-proxy-clusterrole" to User "system:admin"`; !ok || reason != want {
		t.Errorf("member1: %v, %q, want %q", ok, reason, want)
	}
	a := Cluster("member4", "GET", nil)
	ok, reason = p.Allowed(admin, a)
	if ok || reason != "" {
		t.Errorf("member4: %v, %q", ok, reason)
	}
	want := `clusters.cluster.karmada.io "member4" is forbidden: User "system:admin" cannot get resource ` +
		`"clusters/proxy" in API group "cluster.karmada.io" at the cluster scope`
	if e := Forbidden(admin, a, reason); e.Error() != want || e.Cluster != "member4" || e.Code() != http.StatusForbidden {
		t.Errorf("got %d %s (%s)\nwant %s", e.Code(), e.Error(), e.Cluster, want)
	}
	if ok, _ := p.Allowed(&identity.User{Name: "eve", Groups: []string{"system:admin"}},
		Cluster("member1", "GET", nil)); ok {
		t.Error("a group is not a user")
	}
}

func TestVerb(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "get", "HEAD": "get", "OPTIONS": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
		"DELETE": "delete",
		"TRACE":  "", "CONNECT": "", "get": "", "PROPFIND": "",
	} {
		if got := Verb(method, false); got != want {
			t.Errorf("%s: %q, want %q", method, got, want)
		}
		if got := Verb(method, true); got != "create" {
			t.Errorf("%s with upgrade: %q, want create", method, got)
		}
	}
	for _, h := range []http.Header{
		{"Upgrade": {"websocket"}}, {"Upgrade": {"SPDY/3.1"}}, {"Upgrade": {""}}, {"Upgrade": {"a", "b"}},
	} {
		if got := Cluster("c", "GET", h).Verb; got != "create" {
			t.Errorf("GET with %v: %q, want create", h, got)
		}
	}
}

func TestReadersHaveNoShell(t *testing.T) {
	p := Compile([]*rbacv1.ClusterRole{newRole("r", rule("get", ClusterGroup, "clusters/proxy"))},
		[]*rbacv1.ClusterRoleBinding{bind("b", "r", user("ann"))})
	ann := &identity.User{Name: "ann"}
	if ok, _ := p.Allowed(ann, Cluster("c", "GET", http.Header{})); !ok {
		t.Error("get is refused")
	}
	if ok, _ := p.Allowed(ann, Cluster("c", "GET", http.Header{"Upgrade": {"websocket"}})); ok {
		t.Error("a shell is granted to a reader")
	}
}

type allowedCase struct {
	rule    rbacv1.PolicyRule
	subject rbacv1.Subject
	user    *identity.User
	attrs   Attributes
	want    bool
}

var (
	annUser    = &identity.User{Name: "ann", Groups: []string{"dev", "ops"}}
	botUser    = &identity.User{Name: "system:serviceaccount:ns:bot"}
	getThing   = Attributes{Verb: "get", APIGroup: "g", Resource: "things", Name: "x"}
	getProxy   = Attributes{Verb: "get", APIGroup: "g", Resource: "things", Subresource: "proxy", Name: "x"}
	listThings = Attributes{Verb: "list", APIGroup: "g", Resource: "things"}
)

var allowedCases = map[string]allowedCase{
	"exact":                            {rule("get", "g", "things"), user("ann"), annUser, getThing, true},
	"another verb":                     {rule("list,watch", "g", "things"), user("ann"), annUser, getThing, false},
	"any verb":                         {rule("*", "g", "things"), user("ann"), annUser, getThing, true},
	"another group":                    {rule("get", "h", "things"), user("ann"), annUser, getThing, false},
	"the core group is not any":        {rule("get", "", "things"), user("ann"), annUser, getThing, false},
	"any group":                        {rule("get", "*", "things"), user("ann"), annUser, getThing, true},
	"another resource":                 {rule("get", "g", "thing"), user("ann"), annUser, getThing, false},
	"any resource":                     {rule("get", "g", "*"), user("ann"), annUser, getProxy, true},
	"a resource without subresource":   {rule("get", "g", "things"), user("ann"), annUser, getProxy, false},
	"a subresource":                    {rule("get", "g", "things/proxy"), user("ann"), annUser, getProxy, true},
	"a subresource for the resource":   {rule("get", "g", "things/proxy"), user("ann"), annUser, getThing, false},
	"any resource's subresource":       {rule("get", "g", "*/proxy"), user("ann"), annUser, getProxy, true},
	"any resource's other subresource": {rule("get", "g", "*/status"), user("ann"), annUser, getProxy, false},
	"*/sub for the resource":           {rule("get", "g", "*/proxy"), user("ann"), annUser, getThing, false},
	"resource/* is nothing":            {rule("get", "g", "things/*"), user("ann"), annUser, getProxy, false},
	"the end of a subresource":         {rule("get", "g", "things/xproxy"), user("ann"), annUser, getProxy, false},
	"*/* is nothing":                   {rule("get", "g", "*/*"), user("ann"), annUser, getProxy, false},
	"a name":                           {rule("get", "g", "things", "w", "x"), user("ann"), annUser, getThing, true},
	"another name":                     {rule("get", "g", "things", "w"), user("ann"), annUser, getThing, false},
	"no star in names":                 {rule("get", "g", "things", "*"), user("ann"), annUser, getThing, false},
	"a list where names are limited":   {rule("list", "g", "things", "x"), user("ann"), annUser, listThings, false},
	"a list":                           {rule("list", "g", "things"), user("ann"), annUser, listThings, true},
	"no verbs": {
		rbacv1.PolicyRule{APIGroups: []string{"g"}, Resources: []string{"things"}}, user("ann"), annUser, getThing, false,
	},
	"no groups": {
		rbacv1.PolicyRule{Verbs: []string{"*"}, Resources: []string{"things"}}, user("ann"), annUser, getThing, false,
	},
	"no resources": {
		rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}}, user("ann"), annUser, getThing, false,
	},
	"a group's":       {rule("get", "g", "things"), group("ops"), annUser, getThing, true},
	"another group's": {rule("get", "g", "things"), group("ann"), annUser, getThing, false},
	"another user's":  {rule("get", "g", "things"), user("ops"), annUser, getThing, false},
	"everybody's":     {rule("get", "g", "things"), group("system:authenticated"), annUser, getThing, true},
	"everybody's, said explicitly": {
		rule("get", "g", "things"), group("system:authenticated"),
		&identity.User{Name: "ann", Groups: []string{"system:authenticated"}}, getThing, true,
	},
	"everybody's, for the anonymous": {
		rule("get", "g", "things"), group("system:authenticated"), &identity.User{Name: "system:anonymous"}, getThing, false,
	},
	"everybody's, for nobody's group": {
		rule("get", "g", "things"), group("system:authenticated"),
		&identity.User{Name: "ann", Groups: []string{"system:unauthenticated"}}, getThing, false,
	},
	"nobody's, for the anonymous": {
		rule("get", "g", "things"), group("system:unauthenticated"), &identity.User{Name: "system:anonymous"}, getThing, true,
	},
	"nobody's": {rule("get", "g", "things"), group("system:unauthenticated"), annUser, getThing, false},
	"a service account's": {
		rule("get", "g", "things"), rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ns", Name: "bot"}, botUser, getThing,
		true,
	},
	"another namespace's": {
		rule("get", "g", "things"), rbacv1.Subject{Kind: "ServiceAccount", Namespace: "other", Name: "bot"}, botUser,
		getThing, false,
	},
	"a service account without one": {
		rule("get", "g", "things"), rbacv1.Subject{Kind: "ServiceAccount", Name: "bot"}, botUser, getThing, false,
	},
	"a service account as user": {
		rule("get", "g", "things"), user("system:serviceaccount:ns:bot"), botUser, getThing, true,
	},
	"a subject with the API's defaults": {
		rule("get", "g", "things"), rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}, annUser, getThing,
		true,
	},
	"a subject of a foreign group": {
		rule("get", "g", "things"), rbacv1.Subject{Kind: "User", APIGroup: "x.io", Name: "ann"}, annUser, getThing, false,
	},
	"a subject of an unknown kind": {
		rule("get", "g", "things"), rbacv1.Subject{Kind: "user", Name: "ann"}, annUser, getThing, false,
	},
	"a master": {
		rule("get", "g", "other"), user("bob"), &identity.User{Name: "ann", Groups: []string{"system:masters"}}, getThing,
		true,
	},
	"nobody has what nobody asks": {rule("*", "*", "*"), user("ann"), annUser, Attributes{Verb: "get"}, false},
	"a path": {
		urls("get", "/healthz"), user("ann"), annUser, Attributes{Verb: "get", Path: "/healthz"}, true,
	},
	"a longer path": {
		urls("get", "/healthz"), user("ann"), annUser, Attributes{Verb: "get", Path: "/healthz/x"}, false,
	},
	"a path by prefix": {
		urls("get", "/healthz/*"), user("ann"), annUser, Attributes{Verb: "get", Path: "/healthz/x"}, true,
	},
	"a prefix goes over segments": {
		urls("get", "/h*"), user("ann"), annUser, Attributes{Verb: "get", Path: "/healthz/x"}, true,
	},
	"any path": {urls("*", "*"), user("ann"), annUser, Attributes{Verb: "post", Path: "/x"}, true},
	"a path is no resource": {
		rule("*", "*", "*"), user("ann"), annUser, Attributes{Verb: "get", Path: "/x"}, false,
	},
	"a resource is no path": {urls("*", "*"), user("ann"), annUser, getThing, false},
	"a method without verb": {
		rule("get,create,update,patch,delete", "*", "*"), user("ann"), annUser, Cluster("c", "TRACE", nil), false,
	},
	"a method without verb, to any verb": {rule("*", "*", "*"), user("ann"), annUser, Cluster("c", "TRACE", nil), true},
}

func TestAllowed(t *testing.T) {
	for name, tt := range allowedCases {
		t.Run(name, func(t *testing.T) {
			p := Compile([]*rbacv1.ClusterRole{newRole("r", tt.rule)}, []*rbacv1.ClusterRoleBinding{bind("b", "r", tt.subject)})
			if got, reason := p.Allowed(tt.user, tt.attrs); got != tt.want {
				t.Errorf("got %v (%s)", got, reason)
			}
		})
	}
}

func TestRoleRef(t *testing.T) {
	ann := &identity.User{Name: "ann"}
	a := Attributes{Verb: "get", Resource: "pods"}
	roles := []*rbacv1.ClusterRole{newRole("r", rule("*", "*", "*"))}
	for _, ref := range []rbacv1.RoleRef{
		{Kind: "Role", Name: "r", APIGroup: rbacv1.GroupName}, {Kind: "ClusterRole", Name: "r", APIGroup: "x.io"},
		{Name: "r"},
	} {
		b := bind("b", "r", user("ann"))
		b.RoleRef = ref
		if ok, _ := Compile(roles, []*rbacv1.ClusterRoleBinding{b}).Allowed(ann, a); ok {
			t.Errorf("%+v grants", ref)
		}
	}
	ok, reason := Compile(nil, []*rbacv1.ClusterRoleBinding{
		bind("b", "gone", user("ann")), bind("c", "gone", group("system:authenticated")),
	}).Allowed(ann, a)
	if want := `RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`; ok || reason != want {
		t.Errorf("%v, %q, want %q", ok, reason, want)
	}
	want := `pods is forbidden: User "ann" cannot get resource "pods" in API group "" in the namespace "n": why`
	a.Namespace = "n"
	if got := Forbidden(ann, a, "why").Error(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	want = `forbidden: User "ann" cannot get path "/x"`
	if got := Forbidden(ann, Attributes{Verb: "get", Path: "/x"}, "").Error(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestAggregation(t *testing.T) {
	labelled := func(r *rbacv1.ClusterRole, kv ...string) *rbacv1.ClusterRole {
		r.Labels = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			r.Labels[kv[i]] = kv[i+1]
		}
		return r
	}
	aggregating := func(r *rbacv1.ClusterRole, selectors ...metav1.LabelSelector) *rbacv1.ClusterRole {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}
		return r
	}
	match := func(k, v string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
	p := Compile([]*rbacv1.ClusterRole{
		labelled(newRole("a", rule("get", "", "a")), "to", "x"),
		labelled(newRole("b", rule("get", "", "b")), "to", "y"),
		labelled(aggregating(newRole("both", rule("get", "", "own")), match("to", "x"), match("to", "y")), "to", "z"),
		aggregating(newRole("nested"), match("to", "z")),
		labelled(aggregating(newRole("ring1", rule("get", "", "ring")), match("ring", "2")), "ring", "1"),
		labelled(aggregating(newRole("ring2"), match("ring", "1"), match("to", "x")), "ring", "2"),
		aggregating(newRole("broken"), match("to", "x"),
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "to", Operator: "Is"}}}),
		aggregating(newRole("none")),
		aggregating(newRole("exists"),
			metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "to", Operator: metav1.LabelSelectorOpExists}},
			}),
	}, nil)
	a, b := rule("get", "", "a"), rule("get", "", "b")
	for name, want := range map[string][]rbacv1.PolicyRule{
		"a": {a}, "both": {a, b}, "nested": {a, b}, "ring1": {a}, "ring2": {a}, "broken": nil, "none": nil, "exists": {a, b},
	} {
		got, ok := p.RoleRules(name)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s: exists %v\n%s", name, ok, diff)
		}
	}
	if _, ok := p.RoleRules("other"); ok {
		t.Error("a role that does not exist does")
	}
}

func TestRules(t *testing.T) {
	get, list := rule("get", "", "pods"), rule("list", "", "pods")
	p := Compile([]*rbacv1.ClusterRole{newRole("get", get), newRole("list", list)}, []*rbacv1.ClusterRoleBinding{
		bind("1", "get", user("ann"), user("ann"), group("dev")), bind("2", "get", user("ann")),
		bind("3", "list", group("system:authenticated")),
	})
	for name, tt := range map[string]struct {
		user *identity.User
		want []rbacv1.PolicyRule
	}{
		"each role once":  {&identity.User{Name: "ann", Groups: []string{"dev"}}, []rbacv1.PolicyRule{get, list}},
		"said explicitly": {&identity.User{Name: "x", Groups: []string{"system:authenticated"}}, []rbacv1.PolicyRule{list}},
		"a master":        {&identity.User{Name: "x", Groups: []string{"system:masters"}}, append(everything[:2:2], list)},
	} {
		if diff := cmp.Diff(tt.want, p.Rules(tt.user)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func BenchmarkAllowed(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkAllowed(b, n) })
	}
}

func benchmarkAllowed(b *testing.B, n int) {
	roles, oneCluster := make([]*rbacv1.ClusterRole, n), make([]*rbacv1.ClusterRole, n)
	users, groups := make([]*rbacv1.ClusterRoleBinding, n), make([]*rbacv1.ClusterRoleBinding, n)
	for i := range n {
		name := fmt.Sprintf("r%d", i)
		roles[i] = newRole(name, rule("get,create", ClusterGroup, "clusters/proxy", fmt.Sprintf("member%d", i)))
		oneCluster[i] = newRole(name, rule("get,create", ClusterGroup, "clusters/proxy", "member7"))
		users[i] = bind(name, name, user(fmt.Sprintf("user%d", i)), group(fmt.Sprintf("team%d", i%100)))
		groups[i] = bind(name, name, group("everyone"))
	}
	u := &identity.User{Name: "user7", Groups: []string{"a", "b", "team3", "everyone"}}
	for name, p := range map[string]*Policy{
		"spread": Compile(roles, users), "one-group": Compile(roles, groups), "one-cluster": Compile(oneCluster, groups),
	} {
		for _, tt := range []struct {
			name, method, cluster string
			want                  bool
		}{
			{"granted", "GET", "member7", true}, {"another-cluster", "GET", "none", false},
			{"another-verb", "DELETE", "member7", false},
		} {
			a := Cluster(tt.cluster, tt.method, nil)
			b.Run(name+"/"+tt.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if ok, _ := p.Allowed(u, a); ok != tt.want {
						b.Fatal(ok)
					}
				}
			})
		}
	}
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			Compile(roles, users)
		}
	})
}

// The reference is kube-apiserver's own evaluation.
func TestAllowedAgreesWithKubernetes(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	some := func(of ...string) []string {
		var out []string
		for range 1 + rng.IntN(2) {
			out = append(out, of[rng.IntN(len(of))])
		}
		return out
	}
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	allowed := 0
	for range 3000 {
		var roles []*rbacv1.ClusterRole
		var bindings []*rbacv1.ClusterRoleBinding
		held := map[string][]rbacv1.PolicyRule{}
		for i := range 1 + rng.IntN(6) {
			r := newRole(fmt.Sprint("r", i))
			for range 1 + rng.IntN(2) {
				one := rbacv1.PolicyRule{
					Verbs: some("get", "list", "create", "*"), APIGroups: some("", "g", "*"),
					Resources: some("a", "b", "a/s", "*/s", "*"), NonResourceURLs: some("/x", "/x*", "*"),
				}
				if rng.IntN(10) == 0 {
					one.Verbs = append(one.Verbs, "delete")
				}
				if rng.IntN(2) == 0 {
					one.ResourceNames = some("m", "n", "")
				}
				if rng.IntN(5) > 0 {
					one.NonResourceURLs = nil
				}
				r.Rules = append(r.Rules, one)
			}
			roles = append(roles, r)
			to := one("ann", "bob")
			bindings = append(bindings, bind(fmt.Sprint("b", i), r.Name, []rbacv1.Subject{user(to), group(to)}[rng.IntN(2)]))
			held[to] = append(held[to], r.Rules...)
		}
		p := Compile(roles, bindings)
		ann := &identity.User{Name: "ann", Groups: []string{"ann"}}
		a := Attributes{
			Verb: one("get", "create", "delete", ""), APIGroup: one("", "g"), Resource: one("a", "b"), Subresource: one("", "s"),
			Name: one("m", "n", "o", ""),
		}
		if rng.IntN(4) == 0 {
			a.Path = one("/x", "/xy", "/y")
		}
		want := slices.ContainsFunc(held["ann"], func(r rbacv1.PolicyRule) bool { return reference(&r, a) })
		if got, _ := p.Allowed(ann, a); got != want {
			t.Fatalf("seed %d: %+v of %+v: allowed %v; want %v", seed, a, held["ann"], got, want)
		}
		if want {
			allowed++
		}
	}
	if allowed < 300 || allowed > 2700 {
		t.Errorf("%d of 3000 are allowed: that says little", allowed)
	}
}
