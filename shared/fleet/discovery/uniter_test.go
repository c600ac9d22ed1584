package discovery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

// groupOf returns a group with VERSION/RESOURCE,… whose resources have a kind.
func groupOf(name, kind string, of ...string) (g memberGroup) {
	g.Metadata.Name = name
	for _, one := range of {
		version, resources, _ := strings.Cut(one, "/")
		v := memberVersion{Version: version}
		for r := range strings.SplitSeq(resources, ",") {
			v.Resources = append(v.Resources,
				&discoveryv2.APIResourceDiscovery{Resource: r, ResponseKind: &metav1.GroupVersionKind{Kind: kind}})
		}
		g.Versions = append(g.Versions, v)
	}
	return g
}

func anything(string, *discoveryv2.APIResourceDiscovery) bool { return true }

// text returns a union as GROUP/VERSION/RESOURCE:KIND.
func text(union discoveryv2.APIGroupDiscoveryList) string {
	var got []string
	for _, g := range union.Items {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				got = append(got, fmt.Sprintf("%s/%s/%s:%s", g.Name, v.Version, r.Resource, r.ResponseKind.Kind))
			}
		}
	}
	return strings.Join(got, " ")
}

// TestUniter fails if discovery listed a kind twice, in another order, or although it is not global.
func TestUniter(t *testing.T) {
	u := newUniter()
	global := func(apiVersion string, r *discoveryv2.APIResourceDiscovery) bool {
		return r.Resource != "hidden" && apiVersion != "other/v1"
	}
	for i, groups := range [][]memberGroup{
		{
			groupOf("", "a", "v1/pods,hidden,secrets"),
			groupOf("apps", "a", "v1/deployments", "v1/scales,deployments", "v2/hidden"), groupOf("other", "a", "v1/x"),
		},
		{
			groupOf("apps", "b", "v0/deployments", "v1/new,deployments"), groupOf("", "b", "v1/pods,nodes"),
			groupOf("none", "b", "v1/hidden"),
		},
	} {
		for _, g := range groups {
			u.add(i, 1, g, global)
		}
	}
	const want = "/v1/pods:a /v1/secrets:a /v1/nodes:b apps/v1/deployments:a apps/v1/scales:a apps/v1/new:b " +
		"apps/v0/deployments:b"
	if union := u.union(); text(union) != want || len(union.Items) != 2 {
		t.Errorf("%d groups: %s", len(union.Items), text(union))
	}
}

// TestMajorityDecidesDiscovery fails if one member could decide a kind or an order, however often it repeats them.
func TestMajorityDecidesDiscovery(t *testing.T) {
	evil := []memberGroup{groupOf("evil.io", "E", "v1/deployments"), groupOf("evil.io", "E", "v1/deployments"),
		groupOf("evil.io", "E", "v1/deployments"),
		groupOf("apps", "E", "v9/deployments", "v9/deployments", "v1/deployments", "v1/deployments")}
	good := groupOf("apps", "Deployment", "v1/deployments")
	good.Versions[0].Resources[0].Verbs = []string{"get", "list"}
	good.Versions[0].Resources[0].Subresources = []discoveryv2.APISubresourceDiscovery{{Subresource: "scale"}}
	lazy := groupOf("apps", "Deployment", "v1/deployments")
	lazy.Versions[0].Resources[0].Verbs = []string{"watch"}
	const want = "apps/v1/deployments:Deployment apps/v9/deployments:E evil.io/v1/deployments:E"
	for name, others := range map[string]map[int]memberGroup{"two": {1: lazy, 2: good}, "one with two votes": {2: good}} {
		u := newUniter()
		for _, g := range evil {
			u.add(0, 1, g, anything)
		}
		votes := 3 - len(others)
		for _, i := range slices.Sorted(maps.Keys(others)) {
			u.add(i, votes, others[i], anything)
		}
		union := u.union()
		if text(union) != want {
			t.Errorf("%s: %s", name, text(union))
		}
		r := union.Items[0].Versions[0].Resources[0]
		if !slices.Contains(r.Verbs, "list") || len(r.Subresources) != 1 || name == "two" &&
			!slices.Equal(r.Verbs, []string{"watch", "get", "list"}) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if !slices.Equal(lazy.Versions[0].Resources[0].Verbs, []string{"watch"}) {
		t.Error("the discovery of a member is changed")
	}
}

// TestUniterMany fails if uniting many kinds needed time for each pair. It would need minutes.
func TestUniterMany(t *testing.T) {
	const chunks, each = 200, 1000
	u, began := newUniter(), time.Now()
	for i := range chunks {
		resources := make([]string, each)
		for j := range resources {
			resources[j] = fmt.Sprintf("%d-%d", i, j)
		}
		u.add(i, 1, groupOf("g", "k", "v1/"+strings.Join(resources, ",")), anything)
		if took := time.Since(began); took > time.Minute {
			t.Fatalf("%d kinds take %v", (i+1)*each, took)
		}
	}
	if n := len(u.union().Items[0].Versions[0].Resources); n != chunks*each {
		t.Errorf("%d kinds", n)
	}
}

// TestUniterVerbs fails if a resource with too many verbs delayed discovery for minutes, or hid that of others.
func TestUniterVerbs(t *testing.T) {
	const many = 40_000
	good := groupOf("apps", "Deployment", "v1/deployments")
	good.Versions[0].Resources[0].Verbs = []string{"get", "list"}
	good.Versions[0].Resources[0].Subresources = []discoveryv2.APISubresourceDiscovery{{Subresource: "scale"}}
	u := newUniter()
	for i := range 20 {
		evil := groupOf("apps", "Deployment", "v1/deployments", "v1/replicasets")
		verbs, subresources := make([]string, many), make([]discoveryv2.APISubresourceDiscovery, many)
		for j := range many {
			verbs[j] = fmt.Sprintf("%d-%d", i, j)
			subresources[j].Subresource = verbs[j]
		}
		evil.Versions[0].Resources[0].Verbs, evil.Versions[1].Resources[0].Subresources = verbs, subresources
		u.add(i, 1, evil, anything)
		if i == 1 {
			u.add(many, 1, good, anything)
		}
	}
	union := u.union()
	if text(union) != "apps/v1/deployments:Deployment" {
		t.Fatal(text(union))
	}
	if r := union.Items[0].Versions[0].Resources[0]; !slices.Equal(r.Verbs, []string{"get", "list"}) ||
		len(r.Subresources) != 1 {
		t.Errorf("%d verbs, %d subresources", len(r.Verbs), len(r.Subresources))
	}
}

// TestDiscoveryBounded fails if discovery could use many times its size, or if that of a real cluster were refused.
func TestDiscoveryBounded(t *testing.T) {
	const size = maxDiscovered / 2 * 3 // the bytes of "{}," at the limit of values
	of := func(items string) []byte { return []byte(`{"kind":"APIGroupDiscoveryList","items":[` + items + `]}`) }
	in := func(resources string) []byte { return of(`{"versions":[{"resources":[` + resources + `]}]}`) }
	for name, doc := range map[string][]byte{
		"groups":                of(many("{}", size-100)),
		"versions":              of(`{"versions":[` + many("{}", size-100) + `]}`),
		"resources":             in(many("{}", size-100)),
		"subresources":          in(`{"subresources":[` + many("{}", size-100) + `]}`),
		"verbs":                 in(`{"verbs":[` + many(`""`, 2*size-100) + `]}`),
		"kinds":                 in(many(`{"responseKind":{}}`, maxDiscovery-100)),
		"numbers for groups":    of(many("0", maxDiscovery-100)),
		"numbers for resources": in(many("0", maxDiscovery-100)),
		"more resources":        in(many("{}", maxDiscovery-100)),
		"more verbs":            in(`{"verbs":[` + many(`""`, maxDiscovery-100) + `]}`),
	} {
		if n := alloctest.Allocated(func() { _, _ = parseDiscovery(doc) }); n > 80<<20 {
			t.Errorf("%s: %d MiB for %d KiB", name, n>>20, len(doc)>>10)
		}
	}
	for _, bad := range []string{`{"kind":"APIGroupDiscoveryList","items":[0]}`, `{"kind":"APIGroupList","items":[]}`,
		`{"kind":`, `null`} {
		if _, e := parseDiscovery([]byte(bad)); e == nil {
			t.Errorf("%s is read as discovery", bad)
		}
	}
	const kind = `"responseKind":{"group":"cert-manager.io","version":"v1","kind":"CertificateRequest"}`
	const resource = `{"resource":"certificaterequests",` + kind + `,"scope":"Namespaced",` +
		`"singularResource":"certificaterequest","verbs":["delete","deletecollection","get","list","patch","create",` +
		`"update","watch"],"shortNames":["cr","crs"],"categories":["cert-manager"],"subresources":[` +
		`{"subresource":"status",` + kind + `,"verbs":["get","patch","update"]}]}`
	groups, e := parseDiscovery(in(many(resource, maxDiscovery-100)))
	if e != nil || len(groups) != 1 || len(groups[0].Versions[0].Resources) < 5000 ||
		groups[0].Versions[0].Resources[0].Subresources[0].ResponseKind.Kind != "CertificateRequest" {
		t.Errorf("a large document: %v", e)
	}
	u := newUniter()
	null, _ := parseDiscovery(of(`null,{"metadata":{"name":"g"},"versions":[null,{"version":"v1","resources":` +
		`[null,{"resource":"r"}]}]}`))
	for _, g := range null {
		u.add(0, 1, g, anything)
	}
	if got := text(u.union()); got != "" {
		t.Error(got)
	}
}

func many(one string, bytes int) string {
	return strings.TrimSuffix(strings.Repeat(one+",", bytes/(len(one)+1)), ",")
}
