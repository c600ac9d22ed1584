package naming

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

func allRows() []Reference {
	return slices.Concat(metadataReferences(), deletionReferences(), kindReferences(), podReferences(), inTemplates())
}

// bodyGroups are the groups of the bodies of subresources, where they differ from those in the URL.
var bodyGroups = map[string]string{"pods/eviction": "policy", "serviceaccounts/token": "authentication.k8s.io"}

func typesOf(r Reference) (types []reflect.Type) {
	if r.Kind == "*" {
		return []reflect.Type{scheme.Scheme.AllKnownTypes()[schema.GroupVersionKind{Version: "v1", Kind: "Pod"}]}
	}
	group := r.Group
	if other, ok := bodyGroups[r.Resource]; ok {
		group = other
	}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		inGroup := gvk.Group == group || r.Kind == "DeleteOptions" && gvk.Group == ""
		if gvk.Kind == r.Kind && inGroup && gvk.Version != runtime.APIVersionInternal {
			types = append(types, typ)
		}
	}
	return types
}

// fieldOf returns the field of a struct by its name in JSON, with the numbers that lead to it in protobuf.
func fieldOf(typ reflect.Type, name string) (field reflect.StructField, numbers []string, ok bool) {
	for f := range typ.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		switch {
		case tag == name && len(parts) > 1:
			return f, []string{parts[1]}, true
		case tag == "" && f.Anonymous && len(parts) > 1:
			typ, _ := elem(f.Type)
			if inner, below, ok := fieldOf(typ, name); ok {
				return inner, append([]string{parts[1]}, below...), true
			}
		}
	}
	return field, nil, false
}

// elem returns the type behind pointers and the given kinds. met reports whether it found such a kind.
func elem(typ reflect.Type, kinds ...reflect.Kind) (reflect.Type, bool) {
	met := len(kinds) == 0
	for typ.Kind() == reflect.Pointer || slices.Contains(kinds, typ.Kind()) {
		met = met || slices.Contains(kinds, typ.Kind())
		typ = typ.Elem()
	}
	return typ, met
}

func wireOf(typ reflect.Type, path string) (string, error) {
	var numbers []string
	for name := range strings.SplitSeq(path, ".") {
		base, list := strings.CutSuffix(name, "[]")
		base, values := strings.CutSuffix(base, "{}")
		f, own, ok := fieldOf(typ, base)
		if !ok {
			return "", fmt.Errorf("%s has no field %s", typ, base)
		}
		numbers, typ = append(numbers, own...), f.Type
		switch {
		case list:
			typ, ok = elem(typ, reflect.Slice)
		case values:
			numbers = append(numbers, "2") // an entry's value
			typ, ok = elem(typ, reflect.Map)
		default:
			typ, _ = elem(typ)
		}
		if !ok {
			return "", fmt.Errorf("%s is %s", name, typ)
		}
	}
	if typ.Kind() != reflect.String {
		return "", fmt.Errorf("%s is %s, no text", path, typ)
	}
	return strings.Join(numbers, "."), nil
}

// TestReferencesAreFieldsOfKubernetes would fail if a row named no field of its kind, so that a name@cluster stayed.
func TestReferencesAreFieldsOfKubernetes(t *testing.T) {
	for _, r := range allRows() {
		found := false
		for _, typ := range typesOf(r) {
			got, err := wireOf(typ, r.Path)
			if found = found || err == nil; err == nil && got != r.Wire {
				t.Errorf("%s in %s has the numbers %q, the table %q", r.Path, typ, got, r.Wire)
			}
			if err != nil {
				continue // an old version, without the field
			}
			if i := strings.LastIndexByte(r.Path, '.'); r.SiblingKind != "" {
				got, err := wireOf(typ, r.Path[:i]+".kind")
				if err != nil || !strings.HasSuffix(got, "."+strconv.Itoa(kindNumber)) {
					t.Errorf("the kind beside %s in %s has the numbers %q; %v", r.Path, typ, got, err)
				}
			}
		}
		if !found {
			t.Errorf("no version of %s in %q has %s", r.Kind, r.Group, r.Path)
		}
	}
}

func valueAt(path string, value any) map[string]any {
	first, rest, more := strings.Cut(path, ".")
	name, list := strings.CutSuffix(first, "[]")
	name, values := strings.CutSuffix(name, "{}")
	if more {
		value = valueAt(rest, value)
	}
	if list {
		value = []any{value}
	}
	if values {
		value = map[string]any{"key": value}
	}
	return map[string]any{name: value}
}

func objectWith(t *testing.T, r Reference, text string) map[string]any {
	t.Helper()
	o := valueAt(r.Path, text)
	if r.SiblingKind != "" {
		o = besideKind(o, text, r.SiblingKind).(map[string]any)
	}
	metadata, ok := o["metadata"].(map[string]any)
	if !ok && r.Kind != "DeleteOptions" {
		metadata = map[string]any{}
		o["metadata"] = metadata
	}
	if metadata != nil {
		metadata["annotations"] = map[string]any{"note": "stays@member1"}
	}
	return o
}

func besideKind(value any, text, kind string) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = besideKind(v[i], text, kind)
		}
	case map[string]any:
		for key, inner := range v {
			if v[key] = besideKind(inner, text, kind); inner == text {
				v["kind"] = kind
			}
		}
	}
	return value
}

func pointerOf(path string) string {
	return "/" + strings.NewReplacer(".", "/", "[]", "/0", "{}", "/key").Replace(path)
}

func addition(pointer string, value []byte) [2]string {
	const media = "application/json-patch+json"
	return [2]string{media, `[{"op":"add","path":"` + pointer + `","value":` + string(value) + `}]`}
}

func bodiesOf(t *testing.T, r Reference, text string) map[string][2]string {
	t.Helper()
	object := objectWith(t, r, text)
	inJSON, err := encode(object)
	if err != nil {
		t.Fatal(err)
	}
	inYAML, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(r.Path, ".")
	first, list := strings.CutSuffix(first, "[]")
	part, err := encode(object[first])
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string][2]string{
		"JSON":                 {"application/json", string(inJSON)},
		"YAML":                 {"application/yaml", string(inYAML)},
		"apply":                {"application/apply-patch+yaml", string(inYAML)},
		"merge patch":          {"application/merge-patch+json", string(inJSON)},
		"strategic patch":      {"application/strategic-merge-patch+json", string(inJSON)},
		"JSON patch":           addition("", inJSON),
		"JSON patch of a part": addition("/"+first, part),
	}
	if list {
		element, err := encode(object[first].([]any)[0])
		if err != nil {
			t.Fatal(err)
		}
		bodies["JSON patch of an element"] = addition("/"+first+"/-", element)
	}
	if r.SiblingKind == "" {
		bodies["JSON patch of the field"] = addition(pointerOf(r.Path), []byte(strconv.Quote(text)))
	}
	for _, typ := range typesOf(r) {
		if _, err := wireOf(typ, r.Path); err != nil {
			continue
		}
		typed := reflect.New(typ).Interface()
		if err := json.Unmarshal(inJSON, typed); err != nil {
			t.Fatal(err)
		}
		raw, err := typed.(interface{ Marshal() ([]byte, error) }).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		kind := r.Kind
		if kind == "*" {
			kind = "Pod"
		}
		out, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		bodies["protobuf of "+typ.String()] = [2]string{protobufMedia, string(magic) + string(out)}
	}
	return bodies
}

func referencesFor(r Reference) *References {
	switch r.Kind {
	case "DeleteOptions":
		return Deletion
	case "*":
		return anyKind
	}
	return ReferencesOf(r.Group, r.Resource, "")
}

// TestReferencesInRequests would fail if a name@cluster worked in one form of a body and not in another.
func TestReferencesInRequests(t *testing.T) {
	for _, r := range allRows() {
		text, want := "web@member1", "web"
		if r.Scope == scopeVersion {
			text, want = composite, "100"
		}
		bodies, wants := bodiesOf(t, r, text), bodiesOf(t, r, want)
		for form, body := range bodies {
			t.Run(r.Group+"/"+r.Resource+"/"+r.Path+"/"+form, func(t *testing.T) {
				b, err := Parse(referencesFor(r), body[0], []byte(body[1]))
				if err != nil {
					t.Fatal(err)
				}
				got, err := b.ForMember("member1", 7)
				if form == "YAML" || form == "apply" { // the member gets JSON
					wants[form] = wants["JSON"]
				}
				if err != nil || string(got) != wants[form][1] {
					t.Errorf("%q becomes\n%q, %v, want\n%q", body[1], got, err, wants[form][1])
				}
				var clusters []string
				var wantOther [3]string
				if r.Scope != ScopeSelf && r.Scope != scopeVersion {
					clusters, wantOther = []string{"member1"}, [3]string{r.Path, text, "member1"}
				}
				path, name, other := b.ReferenceToOtherCluster("member2", known)
				if got := [3]string{path, name, other}; got != wantOther || !slices.Equal(b.ReferencedClusters(known), clusters) {
					t.Errorf("it names clusters %q, and another by %q", b.ReferencedClusters(known), got)
				}
			})
		}
	}
}

// TestReferencesInAnswers would fail if an object that was read lost a part of a name when it is written back.
func TestReferencesInAnswers(t *testing.T) {
	for _, r := range allRows() {
		if r.Kind == "DeleteOptions" || strings.HasPrefix(r.Path, metadataPath) || r.Scope == scopeVersion {
			continue // TestNamesWithAt has metadata
		}
		t.Run(r.Group+"/"+r.Resource+"/"+r.Path, func(t *testing.T) {
			for own, want := range map[string]string{
				"web": "web", "web@member1": "web@member1@member1", "web@member2": "web@member2@member1",
				"web@example.com": "web@example.com",
			} {
				for _, qualified := range []bool{false, true} {
					checkRoundTrip(t, r, qualified, own, want)
				}
			}
		})
	}
}

func checkRoundTrip(t *testing.T, r Reference, qualified bool, own, want string) {
	t.Helper()
	before, after := objectWith(t, r, own), objectWith(t, r, want)
	text, err := encode(before)
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewAnswer(referencesFor(r), "member1", qualified, slots(nil)).Append(nil, parseObject(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(out)
	if err != nil {
		t.Fatal(err)
	}
	metadata := got.(map[string]any)["metadata"].(map[string]any)
	delete(metadata["annotations"].(map[string]any), merge.SourceAnnotation)
	if !reflect.DeepEqual(got, any(after)) {
		t.Errorf("the client sees %s as %s", text, out)
	}
	b, err := Parse(referencesFor(r), "application/json", out)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := b.ForMember("member1", 7); err != nil || string(back) != string(text) {
		t.Errorf("%s is written back as %s, %v", text, back, err)
	}
}
