package naming

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// allRows are the rows of the table.
func allRows() []Reference {
	return slices.Concat(metadataReferences, deletionReferences, kindReferences, podReferences, inTemplates())
}

// bodyGroups are the groups of the bodies of subresources, where they differ from those in the URL.
var bodyGroups = map[string]string{"pods/eviction": "policy", "serviceaccounts/token": "authentication.k8s.io"}

// typesOf returns the Go types of all versions of a row's kind.
func typesOf(r Reference) (types []reflect.Type) {
	if r.Kind == "*" {
		return []reflect.Type{scheme.Scheme.AllKnownTypes()[schema.GroupVersionKind{Version: "v1", Kind: "Pod"}]}
	}
	group := r.Group
	if other, ok := bodyGroups[r.Resource]; ok {
		group = other
	}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if gvk.Kind == r.Kind && (gvk.Group == group || r.Kind == "DeleteOptions" && gvk.Group == "") && gvk.Version != "__internal" {
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

// elem returns what a pointer, or a list where one is meant, leads to.
func elem(typ reflect.Type, kinds ...reflect.Kind) (reflect.Type, bool) {
	met := len(kinds) == 0
	for typ.Kind() == reflect.Pointer || slices.Contains(kinds, typ.Kind()) {
		met = met || slices.Contains(kinds, typ.Kind())
		typ = typ.Elem()
	}
	return typ, met
}

// wireOf returns the numbers that a path has in a type.
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

// TestReferencesAreFieldsOfKubernetes would fail if a row of the table named no field of its kind, or other numbers in
// protobuf: a name would then stay, or another text change.
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
			if i := strings.LastIndexByte(r.Path, '.'); r.Of != "" {
				if got, err := wireOf(typ, r.Path[:i]+".kind"); err != nil || !strings.HasSuffix(got, "."+strconv.Itoa(kindNumber)) {
					t.Errorf("the kind beside %s in %s has the numbers %q; %v", r.Path, typ, got, err)
				}
			}
		}
		if !found {
			t.Errorf("no version of %s in %q has %s", r.Kind, r.Group, r.Path)
		}
	}
}

// valueAt returns the value that a path leads to in an object with nothing else, whose lists have one element.
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

// objectWith returns an object of the kind of a row, with the row's field and text that stays.
func objectWith(t *testing.T, r Reference, text string) map[string]any {
	t.Helper()
	o := valueAt(r.Path, text)
	if r.Of != "" {
		o = besideKind(o, text, r.Of).(map[string]any)
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

// besideKind adds a kind to each object that has the text.
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

// pointerOf returns a JSON pointer to the field of a path in objectWith.
func pointerOf(path string) string {
	return "/" + strings.NewReplacer(".", "/", "[]", "/0", "{}", "/key").Replace(path)
}

// bodiesOf returns an object in each form that a body has, by content type and form.
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
		"JSON patch":           {"application/json-patch+json", `[{"op":"add","path":"","value":` + string(inJSON) + `}]`},
		"JSON patch of a part": {"application/json-patch+json", `[{"op":"add","path":"/` + first + `","value":` + string(part) + `}]`},
	}
	if list {
		element, err := encode(object[first].([]any)[0])
		if err != nil {
			t.Fatal(err)
		}
		bodies["JSON patch of an element"] = [2]string{"application/json-patch+json", `[{"op":"add","path":"/` + first + `/-","value":` + string(element) + `}]`}
	}
	if r.Of == "" {
		bodies["JSON patch of the field"] = [2]string{"application/json-patch+json", `[{"op":"replace","path":"` + pointerOf(r.Path) + `","value":"` + text + `"}]`}
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

// referencesFor returns the References by which bodies with a row are rewritten.
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
				beside, isReference := b.Beside(known), r.Scope != ScopeSelf && r.Scope != scopeVersion
				if path, name, other := b.Apart("member2", known); isReference != (len(beside) == 1) || isReference != (path == r.Path && name == text && other == "member1") {
					t.Errorf("it is beside %q, and %q in %q is in %q", beside, name, path, other)
				}
			})
		}
	}
}

// TestReferencesInAnswers would fail if an object that was read lost a part of a name when it is written back.
func TestReferencesInAnswers(t *testing.T) {
	for _, r := range allRows() {
		if r.Kind == "DeleteOptions" || r.Scope == scopeVersion || r.Path == "metadata.labels{}" || r.Path == "metadata.namespace" {
			continue // they have no @ of their own
		}
		t.Run(r.Group+"/"+r.Resource+"/"+r.Path, func(t *testing.T) {
			for own, want := range map[string]string{"web": "web", "web@member1": "web@member1@member1", "web@member2": "web@member2@member1", "web@example.com": "web@example.com"} {
				for _, qualified := range []bool{false, true} {
					if qualified && strings.HasPrefix(r.Path, metadataPath) {
						continue // these get the cluster in any case
					}
					before, after := objectWith(t, r, own), objectWith(t, r, want)
					text, err := encode(before)
					if err != nil {
						t.Fatal(err)
					}
					out, err := NewAnswer(referencesFor(r), "member1", qualified).Append(nil, of(t, string(text)))
					if err != nil {
						t.Fatal(err)
					}
					got, err := decode(out)
					if err != nil {
						t.Fatal(err)
					}
					delete(got.(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any), merge.SourceAnnotation)
					if !reflect.DeepEqual(got, any(after)) {
						t.Errorf("%s is answered as %s", text, out)
					}
					b, err := Parse(referencesFor(r), "application/json", out)
					if err != nil {
						t.Fatal(err)
					}
					if back, err := b.ForMember("member1", 7); err != nil || string(back) != string(text) {
						t.Errorf("%s is written back as %s, %v", text, back, err)
					}
				}
			}
		})
	}
}

// TestTextOfOtherKinds would fail if a custom resource lost text with an @ that names no object of the fleet.
func TestTextOfOtherKinds(t *testing.T) {
	const text = `{"apiVersion":"example.com/v1","kind":"Deployment","metadata":{"name":"web"},"roleRef":{"name":"a@member1"},` +
		`"spec":{"containers":[{"name":"a@member1"}],"nodeName":"a@member1","scaleTargetRef":{"name":"a@member1"},"selector":{"matchLabels":{"a":"a@member1"}},` +
		`"template":{"metadata":{"labels":{"a":"a@member1"}}}},"subjects":[{"name":"a@member1","namespace":"a@member1"}]}`
	for form, body := range map[string][2]string{
		"JSON": {"application/json", text}, "apply": {"application/apply-patch+yaml", text}, "merge patch": {"application/merge-patch+json", text},
		"JSON patch": {"application/json-patch+json", `[{"op":"add","path":"/spec/selector/matchLabels/a","value":"a@member1"}]`},
	} {
		t.Run(form, func(t *testing.T) {
			b, err := Parse(resource("example.com/deployments"), body[0], []byte(body[1]))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := b.ForMember("member1", 7); err != nil || string(got) != body[1] {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	want := strings.Replace(text, `"metadata":{`, `"metadata":{"annotations":{"`+merge.SourceAnnotation+`":"member1"},`, 1)
	if out, err := NewAnswer(resource("example.com/deployments"), "member1", false).Append(nil, of(t, text)); err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
}

// TestSubjects would fail if a user lost a part of their name, or a binding got the same subject each time that it is
// written with the namespace of its cluster.
func TestSubjects(t *testing.T) {
	bindings := resource("rbac.authorization.k8s.io/rolebindings")
	for name, tt := range map[string]struct{ contentType, in, want string }{
		"a user":                {"application/json", `{"subjects":[{"kind":"User","name":"a@member1"},{"kind":"Group","name":"a@member1"}]}`, `{"subjects":[{"kind":"User","name":"a@member1"},{"kind":"Group","name":"a@member1"}]}`},
		"an account":            {"application/json", `{"subjects":[{"kind":"ServiceAccount","name":"a@member1","namespace":"b@member1"}]}`, `{"subjects":[{"kind":"ServiceAccount","name":"a","namespace":"b"}]}`},
		"the same account":      {"application/json", `{"subjects":[{"name":"a","namespace":"b"},{"name":"a","namespace":"b@member1"}]}`, `{"subjects":[{"name":"a","namespace":"b"}]}`},
		"equal as they came":    {"application/json", `{"subjects":[{"name":"a"},{"name":"a"}],"n":1.0}`, `{"subjects":[{"name":"a"},{"name":"a"}],"n":1.0}`},
		"a name of an unknown":  {"application/json-patch+json", `[{"op":"replace","path":"/subjects/0/name","value":"a@member1"}]`, `[{"op":"replace","path":"/subjects/0/name","value":"a@member1"}]`},
		"no list":               {"application/json", `{"subjects":{"namespace":"b@member1"}}`, `{"subjects":{"namespace":"b@member1"}}`},
		"a list that has lists": {"application/json", `{"subjects":[[{"namespace":"b@member1"}],7,null]}`, `{"subjects":[[{"namespace":"b@member1"}],7,null]}`},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Parse(bindings, tt.contentType, []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := b.ForMember("member1", 7); err != nil || string(got) != tt.want {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
	t.Run("protobuf", func(t *testing.T) {
		write := func(namespaces ...string) string {
			binding := rbacv1.RoleBinding{Subjects: []rbacv1.Subject{{Kind: "User", Name: "a@member1"}}}
			for _, namespace := range namespaces {
				binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: "a", Namespace: namespace})
			}
			raw, err := binding.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			out, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}, Raw: raw}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			return string(magic) + string(out)
		}
		b, err := Parse(bindings, protobufMedia, []byte(write("b", "b@member1")))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.ForMember("member1", 7); err != nil || string(got) != write("b") {
			t.Errorf("%q, %v", got, err)
		}
	})
	// A list as long as a body may be is compared in time that its length allows.
	long := fill(`{"subjects":[`, `{"namespace":"b@member1"},`, `{}]}`)
	if b, err := Parse(bindings, "application/json", []byte(long)); err == nil {
		if got, err := b.ForMember("member1", 7); err != nil || string(got) != `{"subjects":[{"namespace":"b"},{}]}` {
			t.Errorf("%.100s, %v", got, err)
		}
	} else if !errors.Is(err, scan.ErrTooMany) {
		t.Error(err)
	}
}

// TestElementOrder would fail if a strategic merge patch ordered a list by names that its elements do not have.
func TestElementOrder(t *testing.T) {
	const in = `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web@member1"}],"containers":[{"$patch":"delete","name":"web@member1"}]}}}}`
	b, err := Parse(resource("apps/deployments"), "application/strategic-merge-patch+json", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.ForMember("member1", 7); err != nil || string(got) != strings.ReplaceAll(in, "@member1", "") {
		t.Errorf("%s, %v", got, err)
	}
}
