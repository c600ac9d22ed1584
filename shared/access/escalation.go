package access

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// Uncovered returns the parts of rules that u does not have, and so must not grant to others. Each part has one verb
// and one URL, or one verb, group, resource and at most one name. A rule that grants nothing is returned unchanged.
func (p *Policy) Uncovered(u *identity.User, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if IsMaster(u) {
		return nil
	}
	own := p.Rules(u)
	var missing []rbacv1.PolicyRule
	for i := range rules {
		parts := atoms(&rules[i])
		if len(parts) == 0 {
			missing = append(missing, rules[i])
		}
		for _, part := range parts {
			if !slices.ContainsFunc(own, func(r rbacv1.PolicyRule) bool { return covers(&r, &part) }) {
				missing = append(missing, part)
			}
		}
	}
	return missing
}

// atoms splits a rule into the parts that Uncovered describes.
func atoms(r *rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, verb := range r.Verbs {
		for _, url := range r.NonResourceURLs {
			out = append(out, rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: []string{url}})
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				part := rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}}
				if len(r.ResourceNames) == 0 {
					out = append(out, part)
				}
				for _, name := range r.ResourceNames {
					part.ResourceNames = []string{name}
					out = append(out, part)
				}
			}
		}
	}
	return out
}

// covers reports whether own grants everything that part grants. part is an atom and may contain "*".
func covers(own, part *rbacv1.PolicyRule) bool {
	if !verbMatches(own, part.Verbs[0]) {
		return false
	}
	if len(part.NonResourceURLs) > 0 {
		return urlMatches(own, part.NonResourceURLs[0])
	}
	if len(part.ResourceNames) == 0 && len(own.ResourceNames) > 0 || // own is limited to names
		len(part.ResourceNames) > 0 && !nameMatches(own, part.ResourceNames[0]) {
		return false
	}
	resource, subresource, _ := strings.Cut(part.Resources[0], "/")
	if subresource == "" {
		resource = part.Resources[0]
	}
	return groupMatches(own, part.APIGroups[0]) && resourceMatches(own, resource, subresource)
}

func rbac(verb, resource, name string) Attributes {
	return Attributes{Verb: verb, APIGroup: rbacv1.GroupName, Resource: resource, Name: name}
}

// MayWriteRole returns nil if u may write the rules of r, and otherwise a *status.Error. old is the current role, or
// nil. u needs one of:
//   - the verb escalate on the role; for a new role it must be granted for all names, as in kube-apiserver
//   - all rules of r; all rights if r or old has an aggregationRule
//
// The caller checks the right to create or update roles.
func (p *Policy) MayWriteRole(u *identity.User, r, old *rbacv1.ClusterRole) error {
	a := rbac("escalate", "clusterroles", "")
	if old != nil {
		a.Name = r.Name
	}
	if ok, _ := p.Allowed(u, a); ok {
		return nil
	}
	a.Name = r.Name
	if missing := p.Uncovered(u, r.Rules); len(missing) > 0 {
		return forbidden(a, escalation(u, missing))
	}
	if r.AggregationRule != nil || old != nil && old.AggregationRule != nil {
		if len(p.Uncovered(u, everything)) > 0 {
			return forbidden(a, "must have cluster-admin privileges to use the aggregationRule")
		}
	}
	return nil
}

// MayWriteBinding returns nil if u has all rules of the role of b, or the verb bind on it, and otherwise a
// *status.Error. The caller checks the right to create or update bindings.
func (p *Policy) MayWriteBinding(u *identity.User, b *rbacv1.ClusterRoleBinding) error {
	if ok, _ := p.Allowed(u, rbac("bind", "clusterroles", b.RoleRef.Name)); ok && b.RoleRef.Kind == "ClusterRole" &&
		isRBAC(b.RoleRef.APIGroup) {
		return nil
	}
	a := rbac("bind", "clusterrolebindings", b.Name)
	rules, ok := p.RoleRules(b.RoleRef.Name)
	if !ok || b.RoleRef.Kind != "ClusterRole" {
		return forbidden(a,
			fmt.Sprintf("%s.%s %q not found", strings.ToLower(b.RoleRef.Kind), rbacv1.GroupName, b.RoleRef.Name))
	}
	if missing := p.Uncovered(u, rules); len(missing) > 0 {
		return forbidden(a, escalation(u, missing))
	}
	return nil
}

const maxEscalations = 20

func escalation(u *identity.User, missing []rbacv1.PolicyRule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "user %q (groups=%q) is attempting to grant RBAC permissions not currently held:", u.Name, u.Groups)
	for i := range missing {
		if i == maxEscalations {
			fmt.Fprintf(&b, "\nand %d more", len(missing)-i)
			break
		}
		b.WriteString("\n" + compact(&missing[i]))
	}
	return b.String()
}

// compact formats a rule as kube-apiserver does in its messages.
func compact(r *rbacv1.PolicyRule) string {
	var parts []string
	for _, f := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(f.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", f.name, f.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
