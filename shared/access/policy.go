package access

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// maxMissing is the maximum number of missing roles in the error for a forbidden request.
const maxMissing = 5

// Policy is a compiled set of roles and bindings. It is immutable and safe for concurrent use.
type Policy struct {
	roles    map[string]*role
	subjects map[subject]*subjectGrants
}

type role struct {
	name  string
	rules []rbacv1.PolicyRule
}

type subject struct {
	group bool
	name  string
}

type subjectRole struct {
	subject
	role *role
}

type subjectGrants struct {
	grants  []grant
	missing []string // the first roles that are bound but do not exist
}

type grant struct {
	role    *role
	binding *rbacv1.ClusterRoleBinding
	subject int // index in binding.Subjects
}

// Compile builds a Policy. The caller must not change roles and bindings afterwards. A role with an aggregationRule has
// only the rules of the roles that it selects, as kube-controller-manager would write them.
func Compile(roles []*rbacv1.ClusterRole, bindings []*rbacv1.ClusterRoleBinding) *Policy {
	p := &Policy{roles: make(map[string]*role, len(roles)), subjects: map[subject]*subjectGrants{}}
	for name, rules := range aggregate(roles) {
		p.roles[name] = &role{name, rules}
	}
	bindings = slices.Clone(bindings)
	slices.SortFunc(bindings, func(a, b *rbacv1.ClusterRoleBinding) int { return cmp.Compare(a.Name, b.Name) })
	granted := map[subjectRole]bool{}
	for _, b := range bindings {
		if b.RoleRef.Kind != "ClusterRole" || !isRBAC(b.RoleRef.APIGroup) {
			continue
		}
		for i := range b.Subjects {
			p.add(b, i, granted)
		}
	}
	return p
}

// isRBAC accepts the empty group, too, because objects that bypassed the API have no defaults.
func isRBAC(group string) bool { return group == "" || group == rbacv1.GroupName }

func (p *Policy) add(b *rbacv1.ClusterRoleBinding, i int, granted map[subjectRole]bool) {
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
		h = &subjectGrants{}
		p.subjects[who] = h
	}
	r, ok := p.roles[b.RoleRef.Name]
	if !ok {
		if len(h.missing) < maxMissing && !slices.Contains(h.missing, b.RoleRef.Name) {
			h.missing = append(h.missing, b.RoleRef.Name)
		}
		return
	}
	if pair := (subjectRole{who, r}); !granted[pair] {
		granted[pair] = true
		h.grants = append(h.grants, grant{r, b, i})
	}
}

func (p *Policy) subjectsOf(u *identity.User) iter.Seq2[subject, *subjectGrants] {
	return func(yield func(subject, *subjectGrants) bool) {
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

// Allowed reports whether u may do a. reason is for the audit log and, after a refusal, for the user. It may be "".
func (p *Policy) Allowed(u *identity.User, a Attributes) (allowed bool, reason string) {
	if u.Scope != nil {
		if !scopeAllows(u.Scope, &a) {
			return false, scopeRefusal(u.Scope)
		}
		whole := *u
		whole.Scope = nil
		u = &whole
	}
	if IsMaster(u) {
		return true, "in group " + Masters
	}
	if g, ok := p.find(u, &a); ok {
		return true, "RBAC: allowed by " + g.String()
	}
	return false, p.missing(u)
}

func (p *Policy) find(u *identity.User, a *Attributes) (grant, bool) {
	for _, h := range p.subjectsOf(u) {
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

func (p *Policy) missing(u *identity.User) string {
	var names []string
	for _, h := range p.subjectsOf(u) {
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

// String describes the grant with Kubernetes' wording.
func (g grant) String() string {
	s := &g.binding.Subjects[g.subject]
	name := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		name += "/" + s.Namespace
	}
	return fmt.Sprintf("ClusterRoleBinding %q of ClusterRole %q to %s %q", g.binding.Name, g.binding.RoleRef.Name, s.Kind,
		name)
}

// IsMaster reports whether u may do everything: u is in Masters, and its credential has no Scope.
func IsMaster(u *identity.User) bool { return u.Scope == nil && slices.Contains(u.Groups, Masters) }

var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// Rules returns all rules of u, which the caller must not change. A credential with a Scope has none, because such a
// caller must not grant rights.
func (p *Policy) Rules(u *identity.User) []rbacv1.PolicyRule {
	if u.Scope != nil {
		return nil
	}
	var rules []rbacv1.PolicyRule
	if IsMaster(u) {
		rules = append(rules, everything...)
	}
	seen := map[*role]bool{}
	for _, h := range p.subjectsOf(u) {
		for _, g := range h.grants {
			if !seen[g.role] {
				seen[g.role] = true
				rules = append(rules, g.role.rules...)
			}
		}
	}
	return rules
}

// RoleRules returns the rules of a ClusterRole after aggregation, or false if the role does not exist.
func (p *Policy) RoleRules(name string) ([]rbacv1.PolicyRule, bool) {
	r, ok := p.roles[name]
	if !ok {
		return nil, false
	}
	return r.rules, true
}
