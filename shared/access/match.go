package access

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// allows matches like k8s.io/kubernetes/pkg/apis/rbac/v1, which cannot be imported. It compares names first, because
// they differ most between rules.
func allows(r *rbacv1.PolicyRule, a *Attributes) bool {
	if a.Path != "" {
		return verbMatches(r, a.Verb) && urlMatches(r, a.Path)
	}
	return a.Resource != "" && nameMatches(r, a.Name) && verbMatches(r, a.Verb) &&
		groupMatches(r, a.APIGroup) && resourceMatches(r, a.Resource, a.Subresource)
}

func verbMatches(r *rbacv1.PolicyRule, verb string) bool {
	return hasOrAll(r.Verbs, verb, rbacv1.VerbAll)
}

func groupMatches(r *rbacv1.PolicyRule, group string) bool {
	return hasOrAll(r.APIGroups, group, rbacv1.APIGroupAll)
}

func hasOrAll(list []string, one, all string) bool {
	for _, s := range list {
		if s == one || s == all {
			return true
		}
	}
	return false
}

// resourceMatches supports "*", "resource", "resource/subresource" and "*/subresource", but not "resource/*".
func resourceMatches(r *rbacv1.PolicyRule, resource, subresource string) bool {
	for _, s := range r.Resources {
		if s == rbacv1.ResourceAll {
			return true
		}
		if subresource == "" {
			if s == resource {
				return true
			}
			continue
		}
		first, ok := strings.CutSuffix(s, subresource)
		if !ok {
			continue
		}
		if first == "*/" {
			return true
		}
		if first, ok = strings.CutSuffix(first, "/"); ok && first == resource {
			return true
		}
	}
	return false
}

func nameMatches(r *rbacv1.PolicyRule, name string) bool {
	return len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name)
}

func urlMatches(r *rbacv1.PolicyRule, path string) bool {
	for _, s := range r.NonResourceURLs {
		if s == rbacv1.NonResourceAll || s == path ||
			strings.HasSuffix(s, "*") && strings.HasPrefix(path, strings.TrimRight(s, "*")) {
			return true
		}
	}
	return false
}
