package access

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// Uncovered returns what of rules u does not hold itself, broken down to rules of one group, resource, name and verb
// each. Nobody may give away what is returned. A rule that grants nothing, having no verb for instance, is returned
// as it is: it is no valid rule.
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

// atoms breaks a rule down to rules with one verb and either one URL or one group, resource and, at most, name.
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

// covers reports whether own grants everything that the atom part grants, which may have "*" in it.
func covers(own, part *rbacv1.PolicyRule) bool {
	if !verbMatches(own, part.Verbs[0]) {
		return false
	}
	if len(part.NonResourceURLs) > 0 {
		return urlMatches(own, part.NonResourceURLs[0])
	}
	if len(part.ResourceNames) == 0 && len(own.ResourceNames) > 0 || // all names are more than any
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

// MayWriteRole returns nil if u may give the rules of r to somebody: u holds them all, or the verb escalate on the role.
// old is the role as it was, nil for a new one: as in kube-apiserver, escalate for roles of certain names is for those that are there.
// For a role that aggregates, or did, u must hold everything.
// The error is a *status.Error of reason Forbidden. The right to create or update roles at all is asked apart.
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

// MayWriteBinding returns nil if u may give the role of b to somebody: u holds all rules of the role, or the verb bind on it.
// The error is a *status.Error of reason Forbidden. The right to create or update bindings at all is asked apart.
func (p *Policy) MayWriteBinding(u *identity.User, b *rbacv1.ClusterRoleBinding) error {
	if ok, _ := p.Allowed(u, rbac("bind", "clusterroles", b.RoleRef.Name)); ok && b.RoleRef.Kind == "ClusterRole" && isRBAC(b.RoleRef.APIGroup) {
		return nil
	}
	a := rbac("bind", "clusterrolebindings", b.Name)
	rules, ok := p.RoleRules(b.RoleRef.Name)
	if !ok || b.RoleRef.Kind != "ClusterRole" {
		return forbidden(a, fmt.Sprintf("%s.%s %q not found", strings.ToLower(b.RoleRef.Kind), rbacv1.GroupName, b.RoleRef.Name))
	}
	if missing := p.Uncovered(u, rules); len(missing) > 0 {
		return forbidden(a, escalation(u, missing))
	}
	return nil
}

// maxEscalations bounds how many missing rules a refusal lists.
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

// compact writes a rule as Kubernetes does in such messages.
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
