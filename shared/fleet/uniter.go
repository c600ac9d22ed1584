package fleet

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// What a resource may have of these, several times what those of API servers have: to unite them takes time for each pair.
const (
	maxVerbs        = 64 // and short names, and categories
	maxSubresources = 256
)

// groupOfMember is a group as a member's discovery says it, as far as that is read.
type groupOfMember struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Versions []versionOfMember `json:"versions"`
}

type versionOfMember struct {
	Version   string                              `json:"version"`
	Resources []*discoveryv2.APIResourceDiscovery `json:"resources"` // nil where it says null
}

// maxDiscovered bounds the values of one member's document of discovery, of which each may take 160 bytes. (Those of maxDiscovery bytes have fewer.)
const maxDiscovered = 400_000

// discoveryOf reads a member's document of discovery.
func discoveryOf(cluster string, doc []byte) ([]groupOfMember, *members.Failure) {
	bad := func(err error, why string) *members.Failure {
		return &members.Failure{Cluster: cluster, Code: http.StatusBadGateway, Err: err, Message: fmt.Sprintf("cluster %q %s", cluster, why)}
	}
	if err := scan.Bounded(doc, maxDiscovered); err != nil {
		return nil, bad(err, "sends discovery that cannot be read: "+err.Error())
	}
	var list struct {
		Kind  string          `json:"kind"`
		Items []groupOfMember `json:"items"`
	}
	// This decoder stops at a value that is not what it should be; Go's own makes something of it, and of all that follow.
	switch err := json.Unmarshal(doc, &list); {
	case list.Kind != "APIGroupDiscoveryList":
		return nil, bad(err, "has no aggregated discovery (Kubernetes 1.27 or later has)")
	case err != nil:
		return nil, bad(err, "sends discovery that cannot be read: "+err.Error())
	}
	return list.Items, nil
}

// uniter makes a union. It knows where everything is, since documents of thousands of kinds are united.
//
// What one member says must not change what the others have. So what more members have comes first, since clients take the first version of a
// group, and the first resource of a name; and of what kind a resource is, and whether it has namespaces, is as most members say it. Where as
// many say either, those count that were added first.
type uniter struct{ all united }

// united is what members have of one name: a group, a version in it, or a resource of that.
type united struct {
	name     string
	votes    int // of members that have it
	last     int // the member that voted last
	in       []*united
	at       map[string]*united
	variants []*variant // of a resource
}

// variant is a resource as some members describe it.
type variant struct {
	votes int
	discoveryv2.APIResourceDiscovery
}

func newUniter() *uniter { return &uniter{} }

// vote returns what u has of that name, with a member's votes added, once.
func (u *united) vote(name string, member, votes int) (of *united, first bool) {
	of = u.at[name]
	if of == nil {
		if u.at == nil {
			u.at = map[string]*united{}
		}
		of = &united{name: name, last: -1}
		u.at[name], u.in = of, append(u.in, of)
	}
	if first = of.last != member; first {
		of.last = member
		of.votes += votes
	}
	return of, first
}

// add adds what is global of a member's group, but for resources that have more than can be. A member is added as a whole before the next; it has
// that many votes.
func (u *uniter) add(member, votes int, g groupOfMember, global func(apiVersion string, r *discoveryv2.APIResourceDiscovery) bool) {
	for _, v := range g.Versions {
		apiVersion := strings.TrimPrefix(g.Metadata.Name+"/"+v.Version, "/")
		for _, r := range v.Resources {
			if r == nil || r.ResponseKind == nil || max(len(r.Verbs), len(r.ShortNames), len(r.Categories)) > maxVerbs || len(r.Subresources) > maxSubresources || !global(apiVersion, r) {
				continue
			}
			group, _ := u.all.vote(g.Metadata.Name, member, votes)
			version, _ := group.vote(v.Version, member, votes)
			if resource, first := version.vote(r.Resource, member, votes); first {
				resource.describe(r, votes)
			}
		}
	}
}

// describe adds a member's description of a resource. What may be done with it is all that one of those can that agree on what it is.
func (u *united) describe(r *discoveryv2.APIResourceDiscovery, votes int) {
	i := slices.IndexFunc(u.variants, func(v *variant) bool { return *v.ResponseKind == *r.ResponseKind && v.Scope == r.Scope })
	if i < 0 {
		u.variants = append(u.variants, &variant{votes, *r})
		return
	}
	v := u.variants[i]
	v.votes += votes
	v.Verbs = slices.Clip(v.Verbs)
	for _, verb := range r.Verbs {
		if !slices.Contains(v.Verbs, verb) {
			v.Verbs = append(v.Verbs, verb)
		}
	}
	v.Subresources = slices.Clip(v.Subresources)
	for _, s := range r.Subresources {
		if !slices.ContainsFunc(v.Subresources, func(have discoveryv2.APISubresourceDiscovery) bool { return have.Subresource == s.Subresource }) {
			v.Subresources = append(v.Subresources, s)
		}
	}
}

// sorted is what u has, what more members have first.
func (u *united) sorted() []*united {
	slices.SortStableFunc(u.in, func(a, b *united) int { return cmp.Compare(b.votes, a.votes) })
	return u.in
}

// union is what was added.
func (u *uniter) union() discoveryv2.APIGroupDiscoveryList {
	var out discoveryv2.APIGroupDiscoveryList
	for _, group := range u.all.sorted() {
		g := discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.name}}
		for _, version := range group.sorted() {
			v := discoveryv2.APIVersionDiscovery{Version: version.name, Freshness: discoveryv2.DiscoveryFreshnessCurrent}
			for _, resource := range version.sorted() {
				most := slices.MaxFunc(resource.variants, func(a, b *variant) int { return cmp.Compare(a.votes, b.votes) }) // the first of these
				v.Resources = append(v.Resources, most.APIResourceDiscovery)
			}
			g.Versions = append(g.Versions, v)
		}
		out.Items = append(out.Items, g)
	}
	return out
}
