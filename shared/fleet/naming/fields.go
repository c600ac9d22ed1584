package naming

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// setElementOrder begins the field that orders a list in a strategic merge patch by merge keys, which may be names.
const setElementOrder = "$setElementOrder/"

// field is a node in the tree of the paths of References.
type field struct {
	name     string
	list     bool       // its value is a list, and the node describes the elements
	values   bool       // its value is a map, and ref applies to the values
	distinct bool       // equal elements of the list are reduced to one
	ref      *Reference // nil for nodes that only lead to references
	fields   []*field
}

// replacer returns the text that replaces own at a Reference.
type replacer func(r *Reference, own string) string

func (f *field) add(r *Reference) {
	for name := range strings.SplitSeq(r.Path, ".") {
		base, list := strings.CutSuffix(name, "[]")
		base, values := strings.CutSuffix(base, "{}")
		next := f.field(base)
		if next == nil {
			next = &field{name: base, list: list, values: values}
			f.fields = append(f.fields, next)
		}
		next.distinct = next.distinct || list && r.Distinct
		f = next
	}
	f.ref = r
}

func (f *field) field(name string) *field {
	for _, inner := range f.fields {
		if inner.name == name {
			return inner
		}
	}
	return nil
}

// rewrite changes lists and objects in place.
func (f *field) rewrite(value any, by replacer) any {
	list, isList := value.([]any)
	switch {
	case !f.list:
		return f.element(value, by)
	case !isList:
		return value
	}
	changed := false
	for i, one := range list {
		list[i] = f.element(one, func(r *Reference, own string) string {
			name := by(r, own)
			changed = changed || name != own
			return name
		})
	}
	if changed && f.distinct {
		return distinct(list)
	}
	return list
}

func distinct(list []any) []any {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(one any) bool {
		text, err := json.Marshal(one)
		if err != nil {
			return false
		}
		again := seen[string(text)]
		seen[string(text)] = true
		return again
	})
}

func (f *field) element(value any, by replacer) any {
	switch v := value.(type) {
	case string:
		if f.ref != nil && !f.values {
			return by(f.ref, v)
		}
	case map[string]any:
		if f.values {
			for key, inner := range v {
				if text, ok := inner.(string); ok {
					v[key] = by(f.ref, text)
				}
			}
			return v
		}
		for _, inner := range f.fields {
			if inner.ref != nil && inner.ref.SiblingKind != "" && v["kind"] != inner.ref.SiblingKind {
				continue
			}
			if own, ok := v[inner.name]; ok {
				v[inner.name] = inner.rewrite(own, by)
			}
			if order, ok := v[setElementOrder+inner.name]; ok && inner.list {
				v[setElementOrder+inner.name] = inner.rewrite(order, by)
			}
		}
	}
	return value
}

// at replaces the references in a value at a JSON pointer relative to f. If the pointer leads to a single reference
// that depends on the kind beside it, that reference stays.
func (f *field) at(tokens []string, value any, by replacer) any {
	if len(tokens) == 0 {
		return f.rewrite(value, by)
	}
	if f.list {
		if _, err := strconv.ParseUint(tokens[0], 10, 32); err != nil && tokens[0] != "-" {
			return value
		}
		if tokens = tokens[1:]; len(tokens) == 0 {
			return f.element(value, by)
		}
	}
	if text, ok := value.(string); ok && f.values && len(tokens) == 1 {
		return by(f.ref, text)
	}
	inner := f.field(tokens[0])
	if inner == nil || inner.ref != nil && inner.ref.SiblingKind != "" {
		return value
	}
	return inner.at(tokens[1:], value, by)
}

type jsonReplace func(r *Reference, at scan.Field) error

// in calls replace for each reference in the JSON object that begins at text[at]. It does not change text.
func (f *field) in(s *scan.Scanner, text []byte, at int, replace jsonReplace) error {
	kind := f.kindBeside(s, text, at)
	for found := range s.Fields(text, at) {
		if f.values {
			if err := replace(f.ref, found); err != nil {
				return err
			}
			continue
		}
		for _, inner := range f.fields {
			if !found.Is(inner.name) || inner.ref != nil && inner.ref.SiblingKind != "" && inner.ref.SiblingKind != kind {
				continue
			}
			if err := inner.inValue(s, text, found, replace); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *field) inValue(s *scan.Scanner, text []byte, found scan.Field, replace jsonReplace) error {
	if !f.list {
		return f.inElement(s, text, found, replace)
	}
	for at, end := range s.Elements(text, found.At) {
		if err := f.inElement(s, text, scan.Field{At: at, End: end}, replace); err != nil {
			return err
		}
	}
	return nil
}

func (f *field) inElement(s *scan.Scanner, text []byte, found scan.Field, replace jsonReplace) error {
	if f.ref != nil && !f.values {
		return replace(f.ref, found)
	}
	return f.in(s, text, found.At, replace)
}

func (f *field) kindBeside(s *scan.Scanner, text []byte, at int) (kind string) {
	if !slices.ContainsFunc(f.fields, func(inner *field) bool { return inner.ref != nil && inner.ref.SiblingKind != "" }) {
		return ""
	}
	for found := range s.Fields(text, at) {
		if found.Is("kind") {
			_ = json.Unmarshal(text[found.At:found.End], &kind) // a kind that is no string stays empty
		}
	}
	return kind
}
