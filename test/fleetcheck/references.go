package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

// reference is a field in which the fleet reads and writes name@cluster.
type reference struct {
	group, kind string
	path        []string // names of fields. [] follows a list, {} a map whose values are meant
}

// subjectName is the reference that counts only beside the kind ServiceAccount.
const subjectName = "subjects[].name"

// references returns the table of docs/reference/fleet-names.md. Fields that the table lacks pass unchanged.
var references = sync.OnceValues(func() ([]reference, error) {
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "fleet-names.md"))
	if err != nil {
		return nil, err
	}
	_, table, _ := strings.Cut(string(page), "<!-- references")
	table, _, isWhole := strings.Cut(table, "<!-- end of references -->")
	var rows, templates []reference
	for line := range strings.Lines(table) {
		columns := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(columns) < 3 || !strings.Contains(line, "`") {
			continue
		}
		for i, c := range columns {
			columns[i] = strings.Trim(strings.TrimSpace(c), "`")
		}
		row := reference{strings.Replace(columns[0], "core", "", 1), columns[1], strings.Split(columns[2], ".")}
		if len(columns) == 3 {
			templates = append(templates, row)
		} else {
			rows = append(rows, row)
		}
	}
	if !isWhole || len(rows) == 0 || len(templates) == 0 {
		return nil, errors.New("docs/reference/fleet-names.md has no table of references")
	}
	for _, t := range templates {
		for _, r := range rows {
			if r.kind == "Pod" || r.kind == "*" && r.path[1] == "labels{}" {
				rows = append(rows, reference{t.group, t.kind, append(append([]string{}, t.path...), r.path...)})
			}
		}
	}
	return rows, nil
})

func withReferences(kinds []kind) ([]kind, error) {
	rows, err := references()
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return !slices.ContainsFunc(rows, func(r reference) bool { return r.kind == k.gvk.Kind && r.group == k.gvk.Group })
	}), err
}

func checkout() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find docs/reference/fleet-names.md: no directory above has a go.mod; run it in a checkout")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// rewriteReferences replaces the texts at the references of a kind, in place. Those in metadata count if inMetadata;
// the name and the namespace never do.
func rewriteReferences(k kind, o map[string]any, inMetadata bool, by func(own string) string) {
	rows, err := references()
	if err != nil {
		panic(fmt.Sprintf("read the references, which prepare has read: %v", err))
	}
	for _, r := range rows {
		if r.kind == k.gvk.Kind && r.group == k.gvk.Group {
			rewriteAt(o, r.path, strings.Join(r.path, ".") == subjectName, by)
		}
		isOwn := r.kind == "*" && r.path[1] != "name" && r.path[1] != "namespace"
		if isOwn && inMetadata {
			rewriteAt(o, r.path, false, by)
		}
	}
}

// rewriteAt replaces the texts at a path below v. ofAccounts omits elements of another kind than ServiceAccount.
func rewriteAt(v any, path []string, ofAccounts bool, by func(own string) string) {
	o, _ := v.(map[string]any)
	name, isList := strings.CutSuffix(path[0], "[]")
	name, isMap := strings.CutSuffix(name, "{}")
	list, _ := o[name].([]any)
	values, _ := o[name].(map[string]any)
	switch own, isText := o[name].(string); {
	case isList:
		for _, element := range list {
			if e, ok := element.(map[string]any); !ofAccounts || ok && e["kind"] == "ServiceAccount" {
				rewriteAt(element, path[1:], false, by)
			}
		}
	case isMap:
		for key, value := range values {
			if text, ok := value.(string); ok {
				values[key] = by(text)
			}
		}
	case len(path) > 1:
		rewriteAt(o[name], path[1:], ofAccounts, by)
	case isText:
		o[name] = by(own)
	}
}

// qualify returns a copy in which random references are name@cluster. Names that would read as those of a cluster
// always are.
func (r *runner) qualify(p *pair, o map[string]any) map[string]any {
	chance := generate.Pick(r.src, []int{1, 2, 1 << 30})
	o = generate.Clone(o)
	rewriteReferences(p.kind, o, true, func(own string) string {
		if own != "" && (readsAsQualified(own) || r.src.Chance(chance)) {
			return own + "@" + p.member.name
		}
		return own
	})
	return o
}
