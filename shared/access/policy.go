package access

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// maxMissing bounds how many missing roles a refusal names.
const maxMissing = 5

// Policy is a compiled set of roles and bindings. It does not change and is safe for concurrent use.
type Policy struct {
	roles    map[string]*role
	subjects map[subject]*holdings
	held     map[hold]grant
	index    index
}

// role is a ClusterRole with the rules that it has after aggregation.
type role struct {
	name  string
	rules []rbacv1.PolicyRule
}

// subject is a user, service accounts too, or a group.
type subject struct {
	group bool
	name  string
}

// hold is that a subject holds a role: one way to it is enough.
type hold struct {
	subject
	role *role
}

// holdings are all that one subject holds.
type holdings struct {
	grants  []grant
	missing []string // the first names of roles that do not exist
}

// grant is a subject's hold on a role through one binding.
type grant struct {
	role    *role
	binding *rbacv1.ClusterRoleBinding
	subject int // index in binding.Subjects
}

// Compile makes a Policy of roles and bindings, which must not be changed afterwards. The rules of a role with an
// aggregationRule are those of the roles that it selects, which kube-controller-manager would write into it; what is in
// the role itself does not count.
func Compile(roles []*rbacv1.ClusterRole, bindings []*rbacv1.ClusterRoleBinding) *Policy {
	p := &Policy{roles: make(map[string]*role, len(roles)), subjects: map[subject]*holdings{}, held: map[hold]grant{}, index: index{}}
	rules := aggregate(roles)
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		r := &role{name, rules[name]}
		p.roles[name] = r
		p.index.add(r)
	}
	bindings = slices.Clone(bindings)
	slices.SortFunc(bindings, func(a, b *rbacv1.ClusterRoleBinding) int { return cmp.Compare(a.Name, b.Name) })
	for _, b := range bindings {
		if b.RoleRef.Kind != "ClusterRole" || !isRBAC(b.RoleRef.APIGroup) {
			continue
		}
		for i := range b.Subjects {
			p.add(b, i)
		}
	}
	return p
}

// isRBAC takes the empty group, too: objects that did not go through the API have no defaults in them.
func isRBAC(group string) bool { return group == "" || group == rbacv1.GroupName }

// add gives a subject of a binding its role.
func (p *Policy) add(b *rbacv1.ClusterRoleBinding, i int) {
	s := &b.Subjects[i]
	who := subject{name: s.Name}
	switch {
	case s.Kind == rbacv1.UserKind && isRBAC(s.APIGroup):
	case s.Kind == rbacv1.GroupKind && isRBAC(s.APIGroup):
		who.group = true
	case s.Kind == rbacv1.ServiceAccountKind && s.APIGroup == "" && s.Namespace != "":
		who.name = "system:serviceaccount:" + s.Namespace + ":" + s.Name
	default:
		return
	}
	if s.Name == "" {
		return
	}
	h := p.subjects[who]
	if h == nil {
		h = &holdings{}
		p.subjects[who] = h
	}
	r, ok := p.roles[b.RoleRef.Name]
	if !ok {
		if len(h.missing) < maxMissing && !slices.Contains(h.missing, b.RoleRef.Name) {
			h.missing = append(h.missing, b.RoleRef.Name)
		}
		return
	}
	if _, ok := p.held[hold{who, r}]; !ok {
		g := grant{r, b, i}
		p.held[hold{who, r}] = g
		h.grants = append(h.grants, g)
	}
}

// holders yields the subjects that u is, with what each holds.
func (p *Policy) holders(u *identity.User) iter.Seq2[subject, *holdings] {
	return func(yield func(subject, *holdings) bool) {
		one := func(s subject) bool {
			h, ok := p.subjects[s]
			return !ok || yield(s, h)
		}
		if !one(subject{name: u.Name}) {
			return
		}
		for _, name := range u.Groups {
			if !one(subject{true, name}) {
				return
			}
		}
		if g := u.ImpliedGroup(); g != "" {
			one(subject{true, g})
		}
	}
}

// Allowed decides. The reason is for the audit log and, of a refusal, for the user as well; it may be empty.
func (p *Policy) Allowed(u *identity.User, a Attributes) (allowed bool, reason string) {
	if u.Scope != nil {
		if !within(u.Scope, &a) {
			return false, outside(u.Scope)
		}
		whole := *u
		whole.Scope = nil
		u = &whole
	}
	if IsMaster(u) {
		return true, "in group " + Masters
	}
	held := 0
	for _, h := range p.holders(u) {
		held += len(h.grants)
	}
	// Whichever is less: all that u holds, or all that grants something like a to anybody.
	ways := p.index.find(&a)
	find := p.among
	if held <= ways.len() {
		find = p.scan
	}
	if g, ok := find(u, &a, ways); ok {
		return true, "RBAC: allowed by " + g.String()
	}
	return false, p.missing(u)
}

// scan looks for a grant in all that u holds.
func (p *Policy) scan(u *identity.User, a *Attributes, _ ways) (grant, bool) {
	for _, h := range p.holders(u) {
		for _, g := range h.grants {
			for i := range g.role.rules {
				if allows(&g.role.rules[i], a) {
					return g, true
				}
			}
		}
	}
	return grant{}, false
}

// among looks for a grant in ways, which u may hold or not.
func (p *Policy) among(u *identity.User, a *Attributes, ways ways) (grant, bool) {
	for _, list := range ways {
		for _, w := range list {
			if !allows(w.rule, a) {
				continue
			}
			for s := range p.holders(u) {
				if g, ok := p.held[hold{s, w.role}]; ok {
					return g, true
				}
			}
		}
	}
	return grant{}, false
}

// missing says which roles u would hold if they existed.
func (p *Policy) missing(u *identity.User) string {
	var names []string
	for _, h := range p.holders(u) {
		names = append(names, h.missing...)
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("clusterrole.%s %q not found", rbacv1.GroupName, name)
	}
	return "RBAC: " + strings.Join(names[:min(len(names), maxMissing)], ", ")
}

// String says in Kubernetes' words where a grant comes from.
func (g grant) String() string {
	s := &g.binding.Subjects[g.subject]
	name := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		name += "/" + s.Namespace
	}
	return fmt.Sprintf("ClusterRoleBinding %q of ClusterRole %q to %s %q", g.binding.Name, g.binding.RoleRef.Name, s.Kind, name)
}

// IsMaster reports whether u may do everything.
func IsMaster(u *identity.User) bool { return u.Scope == nil && slices.Contains(u.Groups, Masters) }

// everything is what members of system:masters may do.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// Rules lists all that u may do, each role's rules once, and nothing for a credential with a scope, whose bearer may give nothing away. The
// caller must not change them.
func (p *Policy) Rules(u *identity.User) []rbacv1.PolicyRule {
	if u.Scope != nil {
		return nil
	}
	var rules []rbacv1.PolicyRule
	if IsMaster(u) {
		rules = append(rules, everything...)
	}
	seen := map[*role]bool{}
	for _, h := range p.holders(u) {
		for _, g := range h.grants {
			if !seen[g.role] {
				seen[g.role] = true
				rules = append(rules, g.role.rules...)
			}
		}
	}
	return rules
}

// RoleRules returns the rules of a ClusterRole after aggregation, and whether it exists.
func (p *Policy) RoleRules(name string) ([]rbacv1.PolicyRule, bool) {
	r, ok := p.roles[name]
	if !ok {
		return nil, false
	}
	return r.rules, true
}
