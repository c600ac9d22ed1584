package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// groupOf is a group of VERSION/RESOURCE,…, of which kind says whose they are.
func groupOf(name, kind string, of ...string) discoveryv2.APIGroupDiscovery {
	g := discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, one := range of {
		version, resources, _ := strings.Cut(one, "/")
		v := discoveryv2.APIVersionDiscovery{Version: version}
		for r := range strings.SplitSeq(resources, ",") {
			v.Resources = append(v.Resources, discoveryv2.APIResourceDiscovery{Resource: r, ResponseKind: &metav1.GroupVersionKind{Kind: kind}})
		}
		g.Versions = append(g.Versions, v)
	}
	return g
}

// TestUniter holds: each kind is there once, as the first has it, and all is in the order in which it came; what is not global is left out.
func TestUniter(t *testing.T) {
	u := newUniter()
	global := func(apiVersion, resource, _ string) bool { return resource != "hidden" && apiVersion != "other/v1" }
	for _, g := range []discoveryv2.APIGroupDiscovery{
		groupOf("", "a", "v1/pods,hidden,secrets"), groupOf("apps", "a", "v1/deployments", "v1/scales,deployments", "v2/hidden"), groupOf("other", "a", "v1/x"),
		groupOf("apps", "b", "v0/deployments", "v1/new,deployments"), groupOf("", "b", "v1/pods,nodes"), groupOf("none", "b", "v1/hidden"),
	} {
		u.add(g, global)
	}
	var got []string
	for _, g := range u.union.Items {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				got = append(got, fmt.Sprintf("%s/%s/%s:%s", g.Name, v.Version, r.Resource, r.ResponseKind.Kind))
			}
		}
	}
	const want = "/v1/pods:a /v1/secrets:a /v1/nodes:b apps/v1/deployments:a apps/v1/scales:a apps/v1/new:b apps/v0/deployments:b"
	if text := strings.Join(got, " "); text != want || len(u.union.Items) != 2 {
		t.Errorf("%d groups: %s", len(u.union.Items), text)
	}
}

// TestUniterMany holds: to unite very many kinds takes time for each, not for each pair. (With pairs it is minutes.)
func TestUniterMany(t *testing.T) {
	const chunks, each = 200, 1000
	u, began := newUniter(), time.Now()
	for i := range chunks {
		v := discoveryv2.APIVersionDiscovery{Version: "v1", Resources: make([]discoveryv2.APIResourceDiscovery, each)}
		for j := range v.Resources {
			v.Resources[j] = discoveryv2.APIResourceDiscovery{Resource: fmt.Sprintf("%d-%d", i, j), ResponseKind: &metav1.GroupVersionKind{Kind: "k"}}
		}
		u.add(discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Versions: []discoveryv2.APIVersionDiscovery{v}}, func(string, string, string) bool { return true })
		if took := time.Since(began); took > time.Minute {
			t.Fatalf("%d kinds take %v", (i+1)*each, took)
		}
	}
	if n := len(u.union.Items[0].Versions[0].Resources); n != chunks*each {
		t.Errorf("%d kinds", n)
	}
}
