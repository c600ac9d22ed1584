package aws

import (
	"fmt"
	"slices"
	"strings"
)

type given struct {
	*template
	parameters map[string]any
}

func (tmpl *template) with(parameters ...string) given {
	g := given{tmpl, map[string]any{}}
	for name, p := range tmpl.Parameters {
		if p.Default != nil {
			g.parameters[name] = *p.Default
		}
	}
	for _, p := range parameters {
		name, value, _ := strings.Cut(p, "=")
		g.parameters[name] = value
	}
	return g
}

func (g given) value(v any) any {
	switch v := v.(type) {
	case []any:
		list := []any{}
		for _, e := range v {
			if get(e, "Ref") != "AWS::NoValue" {
				list = append(list, g.value(e))
			}
		}
		return list
	case map[string]any:
		operands := func(name string) []any {
			list, _ := v[name].([]any)
			return list
		}
		holds := func(e any) bool { return g.value(e) == true }
		switch {
		case v["Ref"] != nil:
			if p, ok := g.parameters[v["Ref"].(string)]; ok {
				return p
			}
			return v
		case v["Condition"] != nil && len(v) == 1:
			return g.condition(v["Condition"].(string))
		case v["Fn::Equals"] != nil:
			list := operands("Fn::Equals")
			return fmt.Sprint(g.value(list[0])) == fmt.Sprint(g.value(list[1]))
		case v["Fn::Not"] != nil:
			return !holds(operands("Fn::Not")[0])
		case v["Fn::And"] != nil:
			return !slices.ContainsFunc(operands("Fn::And"), func(e any) bool { return !holds(e) })
		case v["Fn::Or"] != nil:
			return slices.ContainsFunc(operands("Fn::Or"), holds)
		case v["Fn::If"] != nil:
			list := operands("Fn::If")
			if g.condition(list[0].(string)) {
				return g.value(list[1])
			}
			return g.value(list[2])
		case v["Fn::EachMemberEquals"] != nil: // a list parameter is given as one string
			list := operands("Fn::EachMemberEquals")
			want := g.value(list[1])
			return !slices.ContainsFunc(strings.Split(fmt.Sprint(g.value(list[0])), ","), func(e string) bool {
				return e != want
			})
		case v["Fn::EachMemberIn"] != nil:
			list := operands("Fn::EachMemberIn")
			allowed := g.list(list[1])
			return !slices.ContainsFunc(g.list(list[0]), func(e string) bool { return !slices.Contains(allowed, e) })
		case v["Fn::Join"] != nil: // a list parameter, too
			return fmt.Sprint(g.value(operands("Fn::Join")[1]))
		}
		all := map[string]any{}
		for k, e := range v {
			all[k] = g.value(e)
		}
		return all
	}
	return v
}

// list returns a list, or the list that a parameter is.
func (g given) list(v any) []string {
	if literal, ok := v.([]any); ok {
		return render(literal)
	}
	return strings.Split(fmt.Sprint(g.value(v)), ",")
}

func (g given) condition(name string) bool { return g.value(g.Conditions[name]) == true }

func (g given) refusals() []string {
	var all []string
	for _, r := range g.Rules {
		if r.RuleCondition != nil && g.value(r.RuleCondition) != true {
			continue
		}
		for _, a := range r.Assertions {
			if g.value(a.Assert) != true {
				all = append(all, a.AssertDescription)
			}
		}
	}
	return all
}
