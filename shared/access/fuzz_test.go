package access

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// reference is the evaluation of kube-apiserver, copied in structure.
func reference(r *rbacv1.PolicyRule, a Attributes) bool {
	if !slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "*" || v == a.Verb }) {
		return false
	}
	if a.Path != "" {
		return slices.ContainsFunc(r.NonResourceURLs, func(u string) bool {
			return u == "*" || u == a.Path || strings.HasSuffix(u, "*") && strings.HasPrefix(a.Path, strings.TrimRight(u, "*"))
		})
	}
	combined := a.Resource
	if a.Subresource != "" {
		combined += "/" + a.Subresource
	}
	return slices.ContainsFunc(r.APIGroups, func(g string) bool { return g == "*" || g == a.APIGroup }) &&
		slices.ContainsFunc(r.Resources, func(s string) bool {
			return s == "*" || s == combined || a.Subresource != "" && len(s) == len(a.Subresource)+2 &&
				strings.HasPrefix(s, "*/") && strings.HasSuffix(s, a.Subresource)
		}) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

// FuzzAllows also checks escalation: a covering rule allows whatever the covered rule allows.
func FuzzAllows(f *testing.F) {
	f.Add("get,*", "g", "things/proxy,*/proxy", "x", "/a*", "get", "g", "things", "proxy", "x", "/a/b", "get", "g",
		"*/proxy", "x", "/ab*")
	f.Add("get", "", "things/", "", "", "get", "", "things/", "", "", "", "*", "*", "*", "", "*")
	f.Add("get", "", "a/b/c,b/c", "", "**", "get", "", "a", "b/c", "", "", "get", "", "a/b", "", "/*")
	f.Fuzz(func(t *testing.T, verbs, groups, resources, names, paths, verb, group, resource, sub, name, path,
		verbs2, groups2, resources2, names2, paths2 string) {
		split := func(s string) []string {
			if s == "" {
				return nil
			}
			return strings.Split(s, ",")
		}
		one := rbacv1.PolicyRule{
			Verbs: split(verbs), APIGroups: split(groups), Resources: split(resources), ResourceNames: split(names),
			NonResourceURLs: split(paths),
		}
		two := rbacv1.PolicyRule{
			Verbs: split(verbs2), APIGroups: split(groups2), Resources: split(resources2), ResourceNames: split(names2),
			NonResourceURLs: split(paths2),
		}
		a := Attributes{Verb: verb, APIGroup: group, Resource: resource, Subresource: sub, Name: name, Path: path}
		if a.Resource == "" && a.Path == "" {
			return
		}
		for _, r := range []rbacv1.PolicyRule{one, two} {
			if got, want := allows(&r, &a), reference(&r, a); got != want {
				t.Errorf("%+v of %+v: %v, want %v", a, r, got, want)
			}
		}
		p := Compile([]*rbacv1.ClusterRole{newRole("one", one)}, []*rbacv1.ClusterRoleBinding{bind("b", "one", user("u"))})
		if len(p.Uncovered(&identity.User{Name: "u"}, []rbacv1.PolicyRule{two})) == 0 && allows(&two, &a) &&
			!allows(&one, &a) {
			t.Errorf("%+v covers %+v, which allows %+v", one, two, a)
		}
	})
}
