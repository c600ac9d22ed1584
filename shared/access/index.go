package access

import rbacv1 "k8s.io/api/rbac/v1"

// index finds rules by what they are for, whoever holds them: by their verbs, and those that name objects by the names, others by the
// resources. A rule stands in it once for each of these: it grows with what is stored, not with who holds it.
type index map[entry][]way

// entry is where rules stand in an index.
type entry struct {
	by        byte // name, resource or path
	verb, key string
}

// way is a rule of a role.
type way struct {
	role *role
	rule *rbacv1.PolicyRule
}

// maxVerbs bounds how often a rule stands in an index for each of its names. A rule with more verbs stands there for all.
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
				e := entry{by, verb, key}
				x[e] = append(x[e], way{r, rule})
			}
			if len(rule.NonResourceURLs) > 0 {
				e := entry{'p', verb, ""}
				x[e] = append(x[e], way{r, rule})
			}
		}
	}
}

// ways are rules of which some may allow what is asked. No others do.
type ways [8][]way

func (w *ways) len() (n int) {
	for _, list := range w {
		n += len(list)
	}
	return n
}

// find returns all rules that may allow a.
func (x index) find(a *Attributes) (found ways) {
	i := 0
	take := func(by byte, key string) {
		found[i], found[i+1] = x[entry{by, a.Verb, key}], x[entry{by, rbacv1.VerbAll, key}]
		i += 2
	}
	switch {
	case a.Path != "":
		take('p', "")
	case a.Subresource == "":
		take('n', a.Name)
		take('r', rbacv1.ResourceAll)
		take('r', a.Resource)
	default:
		take('n', a.Name)
		take('r', rbacv1.ResourceAll)
		take('r', a.Resource+"/"+a.Subresource)
		take('r', "*/"+a.Subresource)
	}
	return found
}
