package fleet

import (
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// uniter makes a union: it knows where in it everything is, since documents of thousands of kinds are united.
type uniter struct {
	union  discoveryv2.APIGroupDiscoveryList
	groups map[string]*groupAt
}

// groupAt says where in the union a group is, and its versions in it.
type groupAt struct {
	index    int
	versions map[string]*versionAt
}

// versionAt says where in its group a version is, and what resources it has.
type versionAt struct {
	index int
	has   map[string]bool
}

func newUniter() *uniter { return &uniter{groups: map[string]*groupAt{}} }

// add unites what is global of g with what is there: what is there already stays as it is.
func (u *uniter) add(g discoveryv2.APIGroupDiscovery, global func(apiVersion, resource, kind string) bool) {
	for _, v := range g.Versions {
		apiVersion := strings.TrimPrefix(g.Name+"/"+v.Version, "/")
		for _, r := range v.Resources {
			if r.ResponseKind == nil || !global(apiVersion, r.Resource, r.ResponseKind.Kind) {
				continue
			}
			group := u.groups[g.Name]
			if group == nil {
				group = &groupAt{index: len(u.union.Items), versions: map[string]*versionAt{}}
				u.groups[g.Name] = group
				u.union.Items = append(u.union.Items, discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}})
			}
			versions := &u.union.Items[group.index].Versions
			version := group.versions[v.Version]
			if version == nil {
				version = &versionAt{index: len(*versions), has: map[string]bool{}}
				group.versions[v.Version] = version
				*versions = append(*versions, discoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: discoveryv2.DiscoveryFreshnessCurrent})
			}
			if !version.has[r.Resource] {
				version.has[r.Resource] = true
				have := &(*versions)[version.index].Resources
				*have = append(*have, r)
			}
		}
	}
}
