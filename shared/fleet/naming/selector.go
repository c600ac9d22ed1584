package naming

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// RewriteFieldSelector removes @cluster from references and the object's own name. cluster is "" if there is none.
// name@cluster in another field is an error if the resource has References of its own. Otherwise it stays.
func RewriteFieldSelector(references *References, selector string, known func(cluster string) bool) (
	rewritten, cluster string, err error,
) {
	if !strings.Contains(selector, "@") {
		return selector, "", nil
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return "", "", err
	}
	for _, r := range parsed.Requirements() {
		_, c, ok := Split(r.Value, known)
		if ok && r.Operator == selection.NotEquals && (references.listed || references.hasField(r.Field)) {
			return "", "", fmt.Errorf("%s!=%s would exclude objects of other clusters than %q, too", r.Field, r.Value, c)
		}
	}
	parsed, err = parsed.Transform(func(field, value string) (string, string, error) {
		base, c, ok := Split(value, known)
		switch {
		case !ok, !references.listed && !references.hasField(field):
			return field, value, nil
		case !references.hasField(field):
			return "", "", fmt.Errorf("%s does not select by name, but %q names cluster %q", field, value, c)
		}
		if cluster != "" && cluster != c {
			return "", "", fmt.Errorf("it names clusters %q and %q", cluster, c)
		}
		cluster = c
		return field, base, nil
	})
	if err != nil {
		return "", "", err
	}
	return parsed.String(), cluster, nil
}

func (r *References) hasField(path string) bool {
	f := r.requests
	for name := range strings.SplitSeq(path, ".") {
		if f = f.field(name); f == nil || f.list || f.values {
			return false
		}
	}
	return f.ref != nil && f.ref.Scope != scopeVersion
}

// RewriteLabelSelector removes the clusters from a label selector and returns them, or nil. They come from ClusterLabel
// with = or in, or from name@cluster as the value of any label.
func RewriteLabelSelector(selector string) (rewritten string, clusters []string, err error) {
	selector, cluster, err := removeCluster(selector)
	if err != nil {
		return "", nil, err
	}
	if cluster != "" {
		defer func() {
			if err == nil && clusters != nil && !slices.Contains(clusters, cluster) {
				err = fmt.Errorf("it names clusters %q and %q", cluster, clusters)
			}
			clusters = []string{cluster}
		}()
	}
	if !strings.Contains(selector, ClusterLabel) {
		return selector, nil, nil
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return "", nil, err
	}
	requirements, _ := parsed.Requirements()
	rest := labels.NewSelector()
	for _, r := range requirements {
		switch op := r.Operator(); {
		case r.Key() != ClusterLabel:
			rest = rest.Add(r)
		case clusters != nil:
			return "", nil, fmt.Errorf("it names clusters twice")
		case op == selection.Equals, op == selection.DoubleEquals, op == selection.In:
			clusters = r.ValuesUnsorted()
			slices.Sort(clusters)
		default:
			return "", nil, fmt.Errorf("%s supports only = and in, not %q", ClusterLabel, r.String())
		}
	}
	return rest.String(), clusters, nil
}

// removeCluster removes @cluster from the values of a label selector. No key or value of a label has an @ of its own.
func removeCluster(selector string) (rewritten, cluster string, err error) {
	var out strings.Builder
	op := "" // the selector up to and including the operator or parenthesis before the values
	for rest := selector; ; {
		before, after, ok := strings.Cut(rest, "@")
		from := out.Len()
		out.WriteString(before)
		if !ok {
			return out.String(), cluster, nil
		}
		if i := strings.LastIndexAny(before, "=("); i >= 0 {
			op = out.String()[:from+i+1]
		}
		name := before[strings.LastIndexAny(before, "=(,")+1:]
		end := strings.IndexAny(after, ", )\t")
		if end < 0 {
			end = len(after)
		}
		c := after[:end]
		switch {
		case op == "" || strings.TrimSpace(name) == "" || c == "":
			return "", "", fmt.Errorf("want name@cluster as the value of a label, got %s@%s", out.String(), after)
		case cluster != "" && cluster != c:
			return "", "", fmt.Errorf("it names clusters %q and %q", cluster, c)
		case strings.HasSuffix(op, "!="), strings.HasSuffix(strings.TrimRight(op, " \t("), "notin"):
			return "", "", fmt.Errorf("%s@%s would exclude objects of other clusters than %q, too", out.String(), after, c)
		}
		cluster, rest = c, after[end:]
	}
}
