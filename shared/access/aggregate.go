package access

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// aggregate returns each role's rules by the role's name. Aggregated roles select others directly or through other
// aggregated roles. Cycles are allowed.
func aggregate(roles []*rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule {
	rules := make(map[string][]rbacv1.PolicyRule, len(roles))
	selects := map[*rbacv1.ClusterRole][]*rbacv1.ClusterRole{}
	for _, r := range roles {
		if r.AggregationRule == nil {
			rules[r.Name] = r.Rules
		} else {
			selects[r] = selectRoles(r.AggregationRule, roles)
		}
	}
	for r := range selects {
		rules[r.Name] = nil // the role exists even if it selects none
		seen := map[*rbacv1.ClusterRole]bool{r: true}
		for queue := selects[r]; len(queue) > 0; queue = queue[1:] {
			next := queue[0]
			if seen[next] {
				continue
			}
			seen[next] = true
			if next.AggregationRule == nil {
				rules[r.Name] = append(rules[r.Name], next.Rules...)
			} else {
				queue = append(queue[:len(queue):len(queue)], selects[next]...)
			}
		}
	}
	return rules
}

// selectRoles returns no roles if one selector is invalid.
func selectRoles(rule *rbacv1.AggregationRule, roles []*rbacv1.ClusterRole) []*rbacv1.ClusterRole {
	selectors := make([]labels.Selector, len(rule.ClusterRoleSelectors))
	for i := range rule.ClusterRoleSelectors {
		var err error
		if selectors[i], err = metav1.LabelSelectorAsSelector(&rule.ClusterRoleSelectors[i]); err != nil {
			return nil
		}
	}
	var out []*rbacv1.ClusterRole
	for _, r := range roles {
		for _, s := range selectors {
			if s.Matches(labels.Set(r.Labels)) {
				out = append(out, r)
				break
			}
		}
	}
	return out
}
