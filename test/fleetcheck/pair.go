package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// pair is two objects of one cluster that get the same writes: name through the fleet, twin directly.
type pair struct {
	kind       kind
	namespace  string
	member     *member
	name, twin string
	token      string // part of both names, and of no generated text
}

func (p *pair) String() string {
	return fmt.Sprintf("%s %s/%s@%s", p.kind.resource, p.namespace, p.name, p.member.name)
}

// Both tokens have the same length, so that both texts do, too.
const nameToken, twinToken = "thing", "twins"

// There are few names, so that several clusters have objects of one name.
const namesOfKind = 12

// newPair returns nil if the names are in use.
func (r *runner) newPair(k kind) *pair {
	p := &pair{kind: k, member: r.healthyMember()}
	if p.member == nil {
		return nil
	}
	if k.isNamespaced {
		p.namespace = generate.Pick(r.src, namespaces)
	}
	number, suffix := r.src.IntN(namesOfKind), ""
	if k.gvk.Group == "rbac.authorization.k8s.io" && r.src.Chance(3) { // these names may have an @ of their own
		suffix = generate.Pick(r.src, []string{"@member1", "@member2", "@example.com", "@a@b"})
	}
	p.token = fmt.Sprintf("%s%02d", nameToken, number)
	p.name = p.token + suffix
	p.twin = strings.Replace(p.name, nameToken, twinToken, 1)
	for _, other := range r.pairs {
		if other.kind == k && other.namespace == p.namespace && other.member == p.member && other.name == p.name {
			return nil
		}
	}
	return p
}

func (p *pair) twinToken() string { return strings.Replace(p.token, nameToken, twinToken, 1) }

func (r *runner) healthyMember() *member {
	var healthy []*member
	for _, m := range r.members {
		if m.registered && !m.down {
			healthy = append(healthy, m)
		}
	}
	if len(healthy) == 0 {
		return nil
	}
	return generate.Pick(r.src, healthy)
}

func (r *runner) healthyPair() *pair {
	var healthy []*pair
	for _, p := range r.pairs {
		if p.member.registered && !p.member.down {
			healthy = append(healthy, p)
		}
	}
	if len(healthy) == 0 {
		return nil
	}
	return generate.Pick(r.src, healthy)
}

// placement is how a request names the cluster.
type placement int

const (
	byName       placement = iota // name@cluster
	byNamespace                   // namespace@cluster in the path
	byAnnotation                  // annotation of the object that is created
)

func (p placement) String() string { return []string{"name", "namespace", "annotation"}[p] }

// place chooses how a request for a pair names the cluster, and the form of the fleet.
func (r *runner) place(p *pair, isCreate bool) (placement, form) {
	f := generate.Pick(r.src, forms)
	if p.name != p.token { // alone, it may read as name@cluster
		return byName, f
	}
	switch n := r.src.IntN(4); {
	case n == 0 && p.kind.isNamespaced:
		for f.isQualified { // where a namespace names the cluster, names stand alone
			f = generate.Pick(r.src, forms)
		}
		return byNamespace, f
	case n == 1 && isCreate:
		return byAnnotation, f
	}
	return byName, f
}

func (p *pair) names(at placement) (name, namespace string) {
	switch at {
	case byName:
		return p.name + "@" + p.member.name, p.namespace
	case byNamespace:
		return p.name, p.namespace + "@" + p.member.name
	}
	return p.name, p.namespace
}

func (p *pair) shownAs(at placement, f form) shown {
	return shown{
		kind: p.kind, cluster: p.member.name,
		isQualified: f.isQualified || at == byName, qualifiesNamespace: at == byNamespace,
	}
}
