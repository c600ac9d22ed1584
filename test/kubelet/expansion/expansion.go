// Package expansion expands environment variables in a container's command, arguments and variables, like Kubernetes.
package expansion

import "strings"

// Expand replaces $(NAME) by the value of NAME, if it is defined. $$ is a dollar sign.
func Expand(s string, values map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		s = after
		if rest, ok := strings.CutPrefix(s, "$"); ok {
			out.WriteByte('$')
			s = rest
			continue
		}
		inner, isRef := strings.CutPrefix(s, "(")
		name, rest, closed := strings.Cut(inner, ")")
		switch value, known := values[name]; {
		case isRef && closed && known:
			out.WriteString(value)
			s = rest
		case isRef && closed:
			out.WriteString("$(" + name + ")")
			s = rest
		default:
			out.WriteByte('$')
		}
	}
}

// All expands each element of a list.
func All(list []string, values map[string]string) []string {
	var expanded []string
	for _, s := range list {
		expanded = append(expanded, Expand(s, values))
	}
	return expanded
}
