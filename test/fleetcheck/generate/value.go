package generate

import (
	"encoding/json"
	"fmt"
)

// oddKeys are keys of objects that a parser may confuse with known fields.
var oddKeys = []string{
	"kind", "apiVersion", "metadata", "name", "namespace", "items", "annotations", "status", "Kind",
	"KIND", "Metadata", "\u212aind",
	"resourceVersion", "ownerReferences", "", ".", "a.b", "a/b", "~1", "matchLabels", "selector",
	"template", "labels", "subjects",
	"roleRef", "nodeName", "containers", "involvedObject", "scaleTargetRef", "resource.karmada.io/cached-from-cluster",
}

// oddNumbers are literals of numbers that change if they are decoded into a float.
var oddNumbers = []string{
	"0", "-1", "1.5", "1e3", "9007199254740993", "9223372036854775807", "-9223372036854775808", "1e21",
	"1.0", "0.1", "1e-7",
	"123456789.123456789", "2.50", "-0.0", "100000000000000000000",
}

// JSON returns a random JSON value of at most the given depth.
func (s *Source) JSON(depth int) any {
	kind := s.IntN(8)
	if depth <= 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return s.Chance(2)
	case 2:
		return json.Number(Pick(s, oddNumbers))
	case 3, 4:
		return s.Text()
	case 5:
		list := []any{}
		for range s.IntN(4) {
			list = append(list, s.JSON(depth-1))
		}
		return list
	}
	return s.Object(depth - 1)
}

// Object returns a random JSON object.
func (s *Source) Object(depth int) map[string]any {
	o := map[string]any{}
	for range s.IntN(5) {
		o[s.key()] = s.JSON(depth)
	}
	return o
}

func (s *Source) key() string {
	switch s.IntN(3) {
	case 0:
		return Pick(s, oddKeys)
	case 1:
		return s.Text()
	}
	return s.Label()
}

func (s *Source) nested(depth int) any {
	var value any = s.Text()
	for i := range depth {
		if i%2 == 0 {
			value = []any{value}
		} else {
			value = map[string]any{s.Label(): value}
		}
	}
	return value
}

// Custom returns a custom resource with random content below spec, status and fields of any name.
func (s *Source) Custom(apiVersion, kind string) map[string]any {
	o := map[string]any{}
	if s.Chance(3) {
		for k, v := range s.Object(2) {
			o[k] = v
		}
	}
	o["apiVersion"], o["kind"], o["metadata"] = apiVersion, kind, s.Metadata()
	o["spec"] = s.Object(s.IntN(6))
	delete(o, "status")
	delete(o, "items") // an API server reads the object as a list then, and answers a GET with 500
	switch s.IntN(12) {
	case 0: // kinds of other schemas have these fields, and their names are text here
		o["spec"] = map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": s.Label() + "@member1"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web@member2"}},
				"spec":     map[string]any{"nodeName": "n@member1", "containers": []any{map[string]any{"name": "c@member3"}}},
			},
		}
	case 1:
		o["spec"] = s.nested(s.IntN(600))
	case 2:
		list := []any{}
		for range s.IntN(3000) {
			list = append(list, s.Label())
		}
		o["spec"] = map[string]any{"many": list}
	case 3:
		subject := map[string]any{"kind": "ServiceAccount", "name": s.Label() + "@member1", "namespace": "shop@member1"}
		o["subjects"] = []any{subject}
		o["roleRef"] = map[string]any{"kind": "Role", "name": "dev@member2"}
	}
	return o
}

// Forge adds the annotation by which the fleet names an object's cluster.
func (s *Source) Forge(o map[string]any) {
	annotations := ensure(ensure(o, "metadata"), "annotations")
	annotations["resource.karmada.io/cached-from-cluster"] = Pick(s, []string{"member1", "member2", "none", ""})
	if s.Chance(4) {
		o["\u212aind"] = Pick(s, []string{"Table", "Status", "ThingList"})
	}
}

// Label is on every generated object.
const Label = "fleetcheck"

// Metadata returns random metadata without name and namespace.
func (s *Source) Metadata() map[string]any {
	labels := map[string]any{Label: "yes", "group": Pick(s, []string{"a", "b", "c"})}
	m := map[string]any{"labels": labels}
	if s.Chance(2) {
		labels[s.Label()] = s.Label()
	}
	annotations := map[string]any{}
	for range s.IntN(4) {
		annotations[s.Label()] = s.Text()
	}
	if len(annotations) > 0 || s.Chance(4) {
		m["annotations"] = annotations
	}
	if s.Chance(5) {
		m["finalizers"] = []any{"fleetcheck.example/" + s.Label()}
	}
	if owners := s.owners(); len(owners) > 0 {
		m["ownerReferences"] = owners
	}
	return m
}

// owners returns references to objects that need not exist, since no garbage collector runs.
func (s *Source) owners() []any {
	n := 0
	switch {
	case s.Chance(60):
		n = 900 + s.IntN(300)
	case s.Chance(6):
		n = 1 + s.IntN(3)
	}
	var owners []any
	for i := range n {
		owners = append(owners, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "name": fmt.Sprintf("owner-%d", i),
			"uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
		})
	}
	return owners
}

// Annotate sets an annotation.
func Annotate(o map[string]any, key, value string) {
	ensure(ensure(o, "metadata"), "annotations")[key] = value
}

// Change changes labels and annotations, and any field of a custom resource.
func (s *Source) Change(o map[string]any, isCustom bool) {
	Annotate(o, "changed", s.Text())
	ensure(ensure(o, "metadata"), "labels")["group"] = Pick(s, []string{"a", "b", "c"})
	if isCustom {
		o["spec"] = s.Object(4)
	}
}
