package review

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
)

const (
	maxUnion     = 1 << 20 // bytes of the union
	ruleOverhead = 256     // bytes of a rule beside its texts
)

// rule is a rule for resources, or for other URLs.
type rule struct {
	Verbs, APIGroups, Resources, ResourceNames, NonResourceURLs []string
}

// union unites the rules of members. It is not safe for concurrent use.
type union struct {
	rules        map[members.Digest]*unionRule
	bytes        int
	members      int // that were added
	isIncomplete bool
	problems     []string
}

type unionRule struct {
	rule
	order   [3]int // the least index of a member that has it, the rule's index there, and the index of its part
	last    int    // the member that was added last
	members int    // number of members that have it
}

// add adds the rules of a member for a namespace, limited to what the gateway permits. Members are added one by one.
func (u *union) add(member int, g selection.Grant, namespace string, status *authorizationv1.SubjectRulesReviewStatus) {
	u.members++
	u.isIncomplete = u.isIncomplete || status.Incomplete
	if status.EvaluationError != "" {
		u.problems = append(u.problems, shorten(fmt.Sprintf("cluster %q: %s", g.Name, status.EvaluationError)))
	}
	isWhole, hasProxies := true, true
	for i, r := range status.ResourceRules {
		parts, isPermitted := limitRule(r, g, namespace)
		hasProxies = hasProxies && isPermitted
		for part, r := range parts {
			isWhole = u.addRule([3]int{member, i, part}, r) && isWhole
		}
	}
	for i, r := range status.NonResourceRules {
		r := rule{Verbs: permitted(r.Verbs, g.Verbs, ""), NonResourceURLs: r.NonResourceURLs}
		isWhole = u.addRule([3]int{member, i}, r) && isWhole
	}
	if !isWhole {
		u.omit(g.Name, fmt.Sprintf("some rules are left out, because all rules have over %d KiB", maxUnion>>10))
	}
	if !hasProxies && len(g.Spec.ServiceProxy) > 0 {
		u.omit(g.Name, "proxy subresources are left out, because its spec.serviceProxy allows only some objects")
	}
}

func (u *union) omit(cluster, problem string) {
	u.isIncomplete = true
	u.problems = append(u.problems, fmt.Sprintf("cluster %q: %s", cluster, problem))
}

// limitRule returns a rule with the verbs that the caller has on clusters/proxy. Resources that upgrade the connection
// need other verbs. If that makes a difference, they are a rule of their own. limitRule omits proxy subresources unless
// spec.serviceProxy allows all their objects in the namespace. isWhole reports whether it omitted none.
func limitRule(of authorizationv1.ResourceRule, g selection.Grant, namespace string) (parts []rule, isWhole bool) {
	plain := rule{Verbs: permitted(of.Verbs, g.Verbs, ""), APIGroups: of.APIGroups, ResourceNames: of.ResourceNames}
	upgrading := plain
	upgrading.Verbs = permitted(of.Verbs, g.Verbs, anUpgrade)
	isSplit := !slices.Equal(plain.Verbs, upgrading.Verbs)
	isWhole = true
	for _, text := range of.Resources {
		resource, subresource, _ := strings.Cut(text, "/")
		to := &plain
		switch {
		case subresource == proxy && !g.MayProxy(resource, namespace, ""):
			isWhole = false
			continue
		case isSplit && upgrades[subresource]:
			to = &upgrading
		}
		to.Resources = append(to.Resources, text)
	}
	isEmpty := func(r rule) bool { return len(r.Resources) == 0 }
	return slices.DeleteFunc([]rule{plain, upgrading}, isEmpty), isWhole
}

func (u *union) addRule(order [3]int, r rule) (isAdded bool) {
	if len(r.Verbs) == 0 {
		return true
	}
	r.sort()
	key := members.DigestOf(r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs)
	have := u.rules[key]
	if have == nil {
		if u.bytes += r.size(); u.bytes > maxUnion {
			return false
		}
		have = &unionRule{rule: r, order: order, last: -1}
		u.rules[key] = have
	}
	if have.last != order[0] {
		have.last = order[0]
		have.members++
	}
	if compareOrder(order, have.order) < 0 {
		have.order = order
	}
	return true
}

func compareOrder(a, b [3]int) int { return slices.Compare(a[:], b[:]) }

// sort makes rules equal whose lists differ only in their order.
func (r *rule) sort() {
	for _, list := range []*[]string{&r.Verbs, &r.APIGroups, &r.Resources, &r.ResourceNames, &r.NonResourceURLs} {
		*list = slices.Compact(slices.Sorted(slices.Values(*list)))
	}
}

func (r *rule) size() int {
	size := ruleOverhead
	for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
		for _, text := range list {
			size += len(text) + 16
		}
	}
	return size
}

// status returns the union. It is complete only if all members have the same rules and none failed.
func (u *union) status(failures []*members.Failure) authorizationv1.SubjectRulesReviewStatus {
	out := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
		Incomplete: u.isIncomplete || len(failures) > 0,
	}
	isShared := true
	var sorted []*unionRule
	for _, r := range u.rules {
		sorted = append(sorted, r)
		isShared = isShared && r.members == u.members
	}
	slices.SortFunc(sorted, func(a, b *unionRule) int { return compareOrder(a.order, b.order) })
	for _, r := range sorted {
		if len(r.NonResourceURLs) > 0 {
			out.NonResourceRules = append(out.NonResourceRules,
				authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
			continue
		}
		out.ResourceRules = append(out.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
		})
	}
	var problems texts
	switch {
	case u.members == 0 && len(failures) == 0:
		problems.add(uncovered)
	case !isShared:
		out.Incomplete = true
		problems.add("the clusters have different rules; for those of one cluster, ask with a namespace NAMESPACE@CLUSTER")
	}
	for _, e := range failures {
		problems.add(e.Text())
	}
	slices.Sort(u.problems) // members are added in any order
	for _, text := range u.problems {
		problems.add(text)
	}
	out.EvaluationError = problems.String()
	return out
}
