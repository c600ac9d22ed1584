package access

import rbacv1 "k8s.io/api/rbac/v1"

// index finds rules by verb and by name or resource, independent of their subjects. A rule with names is indexed by its
// names, and others by their resources. Its size depends on the stored rules, not on the number of subjects.
type index map[indexKey][]indexedRule

// indexKey is the key of rules in an index.
type indexKey struct { // 'n' for name, 'r' for resource, 'p' for path
	by        byte // name, resource or path
	verb, key string
}

// indexedRule is a rule and its role.
type indexedRule struct {
	role *role
	rule *rbacv1.PolicyRule
}

// maxVerbs is the maximum number of verbs by which a rule is indexed. A rule with more verbs is indexed under "*".
const maxVerbs = 10

var allVerbs = []string{rbacv1.VerbAll}

func (x index) add(r *role) {
	for i := range r.rules {
		rule := &r.rules[i]
		by, keys := byte('n'), rule.ResourceNames
		if len(keys) == 0 {
			by, keys = 'r', rule.Resources
		}
		verbs := rule.Verbs
		if len(verbs) > maxVerbs {
			verbs = allVerbs
		}
		for _, verb := range verbs {
			for _, key := range keys {
				e := indexKey{by, verb, key}
				x[e] = append(x[e], indexedRule{r, rule})
			}
			if len(rule.NonResourceURLs) > 0 {
				e := indexKey{'p', verb, ""}
				x[e] = append(x[e], indexedRule{r, rule})
			}
		}
	}
}

// candidates are all rules that may allow a request, and possibly others.
type candidates [8][]indexedRule

func (w *candidates) len() (n int) {
	for _, list := range w {
		n += len(list)
	}
	return n
}

// find returns all rules that may allow a.
func (x index) find(a *Attributes) (found candidates) {
	i := 0
	add := func(by byte, key string) {
		found[i], found[i+1] = x[indexKey{by, a.Verb, key}], x[indexKey{by, rbacv1.VerbAll, key}]
		i += 2
	}
	switch {
	case a.Path != "":
		add('p', "")
	case a.Subresource == "":
		add('n', a.Name)
		add('r', rbacv1.ResourceAll)
		add('r', a.Resource)
	default:
		add('n', a.Name)
		add('r', rbacv1.ResourceAll)
		add('r', a.Resource+"/"+a.Subresource)
		add('r', "*/"+a.Subresource)
	}
	return found
}
