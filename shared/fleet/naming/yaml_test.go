package naming

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestYAMLKeepsText fails if a member reads other text in a rewritten YAML body than in the original.
func TestYAMLKeepsText(t *testing.T) {
	const head = "metadata: {name: web@member1}\ndata:\n  a: "
	for name, in := range map[string]string{
		"escapes in YAML": head + `"a\Nb\Lc\Pd\_e\x7fg\u0080h\uFFFEi\uFEFFj\U0001F600"`,
		"escapes in JSON": `{"metadata":{"name":"web@member1"},` +
			`"data":{"a":"a\u0085b\u2028c\u2029d\u007fe\u0080f\ufffeg\uffffh\ufeffi"}}`,
		"an escaped key":       `{"metadata":{"name":"web@member1"},"data":{"a\u0085b":"c"}}`,
		"characters":           head + "\"e\u00a0f\u00e9\U0001F600\"",
		"a line break in YAML": head + "\"a\u0085b\u2028c\"",
		"a line break in JSON": "{\"metadata\":{\"name\":\"web@member1\"},\"data\":{\"a\":\"a\u0085b\u2029c\"}}",
		"%TAG in text":         head + "'%TAG'\n  b: |\n    %TAG ! x\n  c: \"x\n    %TAG\"\n",
		"numbers":              head + "010\n  b: 1e3\n  c: 1.50\n  d: yes\n  e: 18446744073709551615\n",
	} {
		t.Run(name, func(t *testing.T) {
			var want, got map[string]any
			if err := yaml.Unmarshal([]byte(in), &want); err != nil {
				t.Fatal(err)
			}
			for _, contentType := range []string{"application/yaml", "application/apply-patch+yaml"} {
				b, err := Parse(anyKind, contentType, []byte(in))
				if err != nil {
					t.Fatal(err)
				}
				out, err := b.ForMember("member1", 7)
				if err != nil {
					t.Fatal(err)
				}
				if err := yaml.Unmarshal(out, &got); err != nil {
					t.Fatalf("%q: %v", out, err)
				}
				if name := got["metadata"].(map[string]any)["name"]; name != "web" || !reflect.DeepEqual(got["data"],
					want["data"]) {
					t.Errorf("%q becomes %q, %q, want %q", in, out, got["data"], want["data"])
				}
			}
		})
	}
}

// TestTagDirective checks that only a directive that defines tags is refused, not its text elsewhere.
func TestTagDirective(t *testing.T) {
	for in, want := range map[string]bool{
		"%TAG !a! x\n---\na: b": true, "# c\n%TAG !a! x\n---\na: b": true, "%YAML 1.1\r%TAG !a! x\n---\na: b": true,
		"\ufeff%TAG !a! x\n---\na: b": true,
		"a: '%TAG'":                   false, "a: |\n  %TAG": false, "%YAML 1.1\n---\na: b": false,
	} {
		if _, err := yamlToJSON([]byte(in)); (err != nil && strings.Contains(err.Error(), "%TAG")) != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// TestDuplicates fails if fieldValidation=Strict accepts duplicate fields of a rewritten body.
func TestDuplicates(t *testing.T) {
	for in, want := range map[string]string{
		`{"metadata":{"name":"web@member1"},"data":{"a":"b","a":"c"},` +
			`"data":{}}`: `duplicate field "data.a" duplicate field "data"`,
		`{"metadata":{"name":"web@member1"},"data":{"a":"b"}}`:                    "",
		`{"metadata":{"name":"web"},"data":{"a":"b","a":"c"}}`:                    "", // the member gets it as it came
		`[{"op":"add","op":"add","path":"/metadata/name","value":"web@member1"}]`: `duplicate field "[0].op"`,
		"metadata: {name: web@member1}\ndata: {a: b, a: c}\n":                     `already set in map`,
	} {
		contentType := "application/json"
		if strings.HasPrefix(in, "metadata") {
			contentType = "application/yaml"
		}
		b, err := Parse(anyKind, contentType, []byte(in))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range b.Duplicates() {
			got = append(got, one.Error())
		}
		if text := strings.Join(got, " "); text != want && (want == "" || !strings.Contains(text, want)) {
			t.Errorf("%s has %q, want %q", in, text, want)
		}
	}
}

// TestTrailingText checks that a body is one value: kube-apiserver refuses what follows it, also a bracket.
func TestTrailingText(t *testing.T) {
	for _, after := range []string{"}", "]", "}x", "{}", "x", ",", "\u00a0"} {
		for _, body := range []string{`{"metadata":{"name":"web@member1"}}`, `[]`} {
			if _, err := Parse(anyKind, "application/json", []byte(body+after)); err == nil {
				t.Errorf("%s is accepted", body+after)
			}
		}
	}
	if _, err := Parse(anyKind, "application/json", []byte(`{"metadata":{"name":"web@member1"}}`+" \r\n\t")); err != nil {
		t.Error(err)
	}
}

// FuzzYAMLKeepsText fails if a YAML parser reads another string in a rewritten body than JSON decoders.
func FuzzYAMLKeepsText(f *testing.F) {
	for _, text := range []string{"a\u0085b", "\u2028\u2029", "\x7f\u0080\u009f", "\ufeff\ufffe\uffff\ufffd", "%TAG",
		"\U0001F600", "&a *a", "\\/\t\r\n\x00\x1b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "web@member1"}, "data": text})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Parse(anyKind, "application/apply-patch+yaml", escapeForYAML(in))
		if err != nil {
			t.Fatal(err)
		}
		out, err := b.ForMember("member1", 7)
		if err != nil {
			t.Fatal(err)
		}
		var got, want struct{ Data string }
		if err := json.Unmarshal(in, &want); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(out, &got); err != nil || got != want {
			t.Errorf("%q becomes %q, %q, %v", text, out, got.Data, err)
		}
	})
}
