package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Bounds of a resource, several times the numbers of real API servers. Uniting needs time for each pair.
const (
	maxVerbs        = 64 // and short names, and categories
	maxSubresources = 256
)

type memberGroup struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Versions []memberVersion `json:"versions"`
}

type memberVersion struct {
	Version   string                              `json:"version"`
	Resources []*discoveryv2.APIResourceDiscovery `json:"resources"` // an element may be nil, for null
}

// maxDiscovered limits the values in one member's document, since each may need 160 bytes.
const maxDiscovered = 400_000

// parseDiscovery returns errors that follow the name of a cluster.
func parseDiscovery(doc []byte) ([]memberGroup, error) {
	if err := scan.CheckValueCount(doc, maxDiscovered); err != nil {
		return nil, fmt.Errorf("sends discovery that cannot be read: %w", err)
	}
	var list struct {
		Kind  string        `json:"kind"`
		Items []memberGroup `json:"items"`
	}
	// This decoder stops at a value of another type. Go's own decodes the values behind it, too.
	switch err := json.Unmarshal(doc, &list); {
	case list.Kind != "APIGroupDiscoveryList":
		return nil, errors.New("has no aggregated discovery (Kubernetes 1.27 or later has)")
	case err != nil:
		return nil, fmt.Errorf("sends discovery that cannot be read: %w", err)
	}
	return list.Items, nil
}

// uniter builds a union of discovery. The votes of members decide the kind and scope of a resource, and the order,
// since clients use the first version and resource. On a tie, the member that was added first decides.
type uniter struct{ all node }

// node is a group, a version of a group, or a resource of a version.
type node struct {
	name     string
	votes    int // sum over the members that have it
	last     int // the member that voted last
	children []*node
	at       map[string]*node
	variants []*variant // descriptions of a resource
}

type variant struct {
	votes int
	discoveryv2.APIResourceDiscovery
}

func newUniter() *uniter { return &uniter{} }

// vote adds a member's votes to the child of that name, once. first reports whether it added them.
func (u *node) vote(name string, member, votes int) (of *node, first bool) {
	of = u.at[name]
	if of == nil {
		if u.at == nil {
			u.at = map[string]*node{}
		}
		of = &node{name: name, last: -1}
		u.at[name], u.children = of, append(u.children, of)
	}
	if first = of.last != member; first {
		of.last = member
		of.votes += votes
	}
	return of, first
}

// add adds the global resources of a member's group. All groups of a member must be added before those of the next.
func (u *uniter) add(
	member, votes int, g memberGroup, isGlobal func(apiVersion string, r *discoveryv2.APIResourceDiscovery) bool,
) {
	for _, v := range g.Versions {
		apiVersion := strings.TrimPrefix(g.Metadata.Name+"/"+v.Version, "/")
		for _, r := range v.Resources {
			if r == nil || r.ResponseKind == nil || isOversized(r) || !isGlobal(apiVersion, r) {
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

func isOversized(r *discoveryv2.APIResourceDiscovery) bool {
	return max(len(r.Verbs), len(r.ShortNames), len(r.Categories)) > maxVerbs || len(r.Subresources) > maxSubresources
}

// describe merges the descriptions of members that agree on kind and scope into one variant.
func (u *node) describe(r *discoveryv2.APIResourceDiscovery, votes int) {
	i := slices.IndexFunc(u.variants, func(v *variant) bool {
		return *v.ResponseKind == *r.ResponseKind && v.Scope == r.Scope
	})
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
		isSame := func(have discoveryv2.APISubresourceDiscovery) bool { return have.Subresource == s.Subresource }
		if !slices.ContainsFunc(v.Subresources, isSame) {
			v.Subresources = append(v.Subresources, s)
		}
	}
}

func (u *node) sorted() []*node {
	slices.SortStableFunc(u.children, func(a, b *node) int { return cmp.Compare(b.votes, a.votes) })
	return u.children
}

func (u *uniter) union() discoveryv2.APIGroupDiscoveryList {
	var out discoveryv2.APIGroupDiscoveryList
	for _, group := range u.all.sorted() {
		g := discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.name}}
		for _, version := range group.sorted() {
			v := discoveryv2.APIVersionDiscovery{Version: version.name, Freshness: discoveryv2.DiscoveryFreshnessCurrent}
			for _, resource := range version.sorted() {
				most := slices.MaxFunc(resource.variants, func(a, b *variant) int {
					return cmp.Compare(a.votes, b.votes) // MaxFunc returns the first on a tie
				})
				v.Resources = append(v.Resources, most.APIResourceDiscovery)
			}
			g.Versions = append(g.Versions, v)
		}
		out.Items = append(out.Items, g)
	}
	return out
}
