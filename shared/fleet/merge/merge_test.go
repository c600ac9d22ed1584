package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

func read(r io.Reader) (*Source, []string, error) {
	s, err := Open("m", r)
	if err != nil {
		return nil, nil, err
	}
	var objects []string
	for {
		v, err := s.Next()
		if errors.Is(err, io.EOF) {
			return s, objects, nil
		} else if err != nil {
			return s, objects, err
		}
		objects = append(objects, string(v.Text))
	}
}

func TestSource(t *testing.T) {
	remaining := int64(7)
	full := &Metadata{ResourceVersion: "12", Continue: "abc", RemainingItemCount: &remaining}
	for name, tt := range map[string]struct {
		in       string
		metadata *Metadata
		isEarly  bool // metadata precedes the objects
		objects  []string
		kind     string
	}{
		"kube-apiserver": {`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"abc",` +
			`"remainingItemCount":7},"items":[{"a":1},{"b":"]}\""}]}` + "\n",
			full, true, []string{`{"a":1}`, `{"b":"]}\""}`}, "PodList"},
		"of a CRD": {
			`{"apiVersion":"v1","items":[{"a":1}],"kind":"WidgetList","metadata":{"resourceVersion":"12"}}`,
			&Metadata{ResourceVersion: "12"}, false, []string{`{"a":1}`}, "WidgetList",
		},
		"empty": {
			`{"kind":"PodList","metadata":{"resourceVersion":"12"},"items":[]}`, &Metadata{ResourceVersion: "12"}, true, nil,
			"PodList",
		},
		"null": {
			`{"kind":"PodList","metadata":{"resourceVersion":"12"},"items":null}`, &Metadata{ResourceVersion: "12"}, true, nil,
			"PodList",
		},
		"without": {`{"kind":"PodList","metadata":{}}`, &Metadata{}, true, nil, "PodList"},
		"a table": {
			`{"kind":"Table","metadata":{},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a"]}]}`, &Metadata{}, true,
			[]string{`{"cells":["a"]}`}, "Table",
		},
		"more fields": {
			`{"kind":"PodList","x":[{"items":[1]}],"metadata":{},"items":[{"a":1}],"y":{}}`, &Metadata{}, true,
			[]string{`{"a":1}`}, "PodList",
		},
		"pretty JSON": {
			"{\n \"kind\": \"PodList\",\n \"metadata\": {},\n \"items\": [\n  {\"a\": 1},\n  {\"b\": 2}\n ]\n}\n", &Metadata{},
			true, []string{`{"a": 1}`, `{"b": 2}`}, "PodList",
		},
		"large object": {
			`{"kind":"PodList","metadata":{},"items":[{"a":"` + strings.Repeat("x", 8_000) + `"}]}`, &Metadata{}, true,
			[]string{`{"a":"` + strings.Repeat("x", 8_000) + `"}`}, "PodList",
		},
	} {
		s, err := Open("m", strings.NewReader(tt.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if (s.Metadata() != nil) != tt.isEarly {
			t.Errorf("%s: metadata came early: %v", name, s.Metadata() != nil)
		}
		for split, r := range map[string]io.Reader{"whole": strings.NewReader(tt.in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in))} {
			s, objects, err := read(r)
			if err != nil {
				t.Errorf("%s, %s: %v", name, split, err)
				continue
			}
			if !reflect.DeepEqual(objects, tt.objects) || !reflect.DeepEqual(s.Metadata(), tt.metadata) || s.Kind != tt.kind ||
				s.Read != len(tt.objects) {
				t.Errorf("%s, %s: %d objects %.100q, metadata %+v, kind %q", name, split, s.Read, objects, s.Metadata(), s.Kind)
			}
		}
	}
}

// TestSourceRefuses would fail if a broken or incomplete list were shown as a shorter one.
func TestSourceRefuses(t *testing.T) {
	whole := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[{"a":{"b":[1,"x"]}},` +
		`{"c":2}]}`
	for i := range whole {
		if _, _, err := read(strings.NewReader(whole[:i])); err == nil {
			t.Errorf("%s is read as complete", whole[:i])
		}
	}
	for _, in := range []string{
		whole + "x", whole + whole, `[]`, `"x"`, `{}`, `{"kind":"Pod","metadata":{}}`, `{"kind":"PodList","items":[]}`,
		`{"kind":"PodList","metadata":{},"items":[1]}`,
		`{"kind":"PodList","metadata":{},"items":{}}`,
		`{"kind":"PodList","metadata":{},"items":[{]}}`,
		`{"kind":"PodList","metadata":{},"items":[],"items":[{"a":1}]}`,
		`{"kind":"Table","metadata":{},"rows":[],"columnDefinitions":[]}`,
		`{"kind":1,"metadata":{},"items":[]}`,
		`{"kind":"PodList","metadata":{},"items":[{"a":1} {"b":2}]}`,
	} {
		if _, objects, err := read(strings.NewReader(in)); err == nil {
			t.Errorf("%s is read as a list of %q", in, objects)
		}
	}
	endless := io.MultiReader(strings.NewReader(`{"kind":"PodList","metadata":{},"items":[{"a":"`), endlessX{})
	if _, _, err := read(endless); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an object without end: %v", err)
	}
}

// TestLongContinue would fail if a cluster could make the fleet return a continue token that is too long for a URL.
func TestLongContinue(t *testing.T) {
	for token, want := range map[string]bool{
		strings.Repeat("x", MaxContinue-2):        true,
		strings.Repeat("x", MaxContinue-1):        false,
		strings.Repeat(`\u0000`, MaxContinue/6+1): false,
	} {
		for _, list := range []string{`{"kind":"PodList","metadata":{"continue":"%s"},"items":[{"a":1}]}`,
			`{"apiVersion":"v1","items":[{"a":1}],"kind":"WidgetList","metadata":{"continue":"%s"}}`} {
			_, _, err := read(strings.NewReader(fmt.Sprintf(list, token)))
			if (err == nil) != want || err != nil &&
				!strings.Contains(err.Error(), `cluster "m" cannot be read: its continue token is over 8 KiB`) {
				t.Errorf("%.70s… %d bytes: %v", list, len(token), err)
			}
		}
	}
}

type endlessX struct{}

func (endlessX) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestAnnotate(t *testing.T) {
	const pair = `"resource.karmada.io/cached-from-cluster":"c"`
	for in, want := range map[string]string{
		`{}`:                                          `{"metadata":{"annotations":{` + pair + `}}}`,
		`{"a":1}`:                                     `{"metadata":{"annotations":{` + pair + `}},"a":1}`,
		`{"metadata":{}}`:                             `{"metadata":{"annotations":{` + pair + `}}}`,
		`{"metadata":{"name":"x"},"a":1}`:             `{"metadata":{"annotations":{` + pair + `},"name":"x"},"a":1}`,
		`{"metadata":{"annotations":null}}`:           `{"metadata":{"annotations":{` + pair + `}}}`,
		`{"metadata":{"annotations":{}}}`:             `{"metadata":{"annotations":{` + pair + `}}}`,
		`{"metadata":{"annotations":{"a":"b"}}}`:      `{"metadata":{"annotations":{` + pair + `,"a":"b"}}}`,
		`{"metadata":{"annotations":{` + pair + `}}}`: `{"metadata":{"annotations":{` + pair + `}}}`,
		`{"metadata":{"annotations":{` + strings.Replace(pair, `"c"`, `"lie"`, 1) +
			`,"a":"b"}}}`: `{"metadata":{"annotations":{` + pair + `,"a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b",` + pair +
			`}}}`: `{"metadata":{"annotations":{` + pair + `,"a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b", ` + pair +
			`, "d":"e"}}}`: `{"metadata":{"annotations":{` + pair + `,"a":"b", "d":"e"}}}`,
		`{"metadata":{},"spec":{"metadata":{"a":"\u003c"},"b":"metadata"}}`: `{"metadata":{"annotations":{` + pair +
			`}},"spec":{"metadata":` +
			`{"a":"\u003c"},"b":"metadata"}}`,
		`{"spec":{"metadata":{"annotations":{}}},"metadata":{"name":"x"}}`: `{"spec":{"metadata":{"annotations":{}}},` +
			`"metadata":{"annotations":{` + pair + `},"name":"x"}}`,
	} {
		got, err := NewAnnotator("c", nil).Append(nil, parseObject(t, in))
		if err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
	a := NewAnnotator("c", nil)
	if _, err := a.Append(nil, parseObject(t, `{"metadata":{"name":"x","namespace":"ns"}}`)); err != nil ||
		a.Namespace() != "ns" {
		t.Errorf("namespace %q, %v", a.Namespace(), err)
	}
	by := &rewrites{version: func(own string) string { return own + "0" }}
	a = NewAnnotator("c", by)
	for in, want := range map[string]string{
		`{"metadata":{"resourceVersion":"5","annotations":{"a":"b"}}}`: `{"metadata":` +
			`{"resourceVersion":"50","annotations":{` + pair + `,"a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b",` + pair + `},"resourceVersion":"5"}}`: `{"metadata":{"annotations":{` + pair +
			`,"a":"b"},"resourceVersion":"50"}}`,
		`{"metadata":{"resourceVersion":"5"}}`: `{"metadata":{"annotations":{` + pair +
			`},"resourceVersion":"50"}}`,
		`{"metadata":{"name":"x"}}`: `{"metadata":{"annotations":{` + pair +
			`},"name":"x"}}`,
	} {
		if got, err := a.Append(nil, parseObject(t, in)); err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
	by.name = func(own string) string { return own + "@c" }
	for _, in := range []string{`{"metadata":1}`, `{"metadata":{"annotations":[]}}`,
		`{"metadata":{"name":"x"},"metadata":{"annotations":{}}}`,
		`{"metadata":{"name":"x"},"spec":{},"metad\u0061ta":{}}`,
		`{"metadata":{"name":"x","annotations":{},"annotations":null}}`,
		`{"metadata":{"resourceVersion":"1","resourceVersion":"2"}}`,
		`{"metadata":{"annotations":{` + pair + `,"a":"b",` + pair + `}}}`,
		`{"metadata":{"name":"x","n\u0061me":"y"}}`,
		`{"metadata":{"ownerReferences":[{"name":"x","name":"y"}]}}`,
		`{"metadata":{"annotations":{"` + LastApplied + `":"{}","` + LastApplied + `":"{}"}}}`,
		`{"metadata":{"annotations":{},"namespace":"x","namespace":"y"}}`,
	} {
		if got, err := a.Append(nil, parseObject(t, in)); err == nil {
			t.Errorf("%s becomes %s", in, got)
		}
	}
}

// rewrites is a Rewriter. A function that is nil changes nothing.
type rewrites struct{ name, inNamespace, version func(own string) string }

func (r *rewrites) Name(own string) string        { return apply(r.name, own) }
func (r *rewrites) InNamespace(own string) string { return apply(r.inNamespace, own) }
func (r *rewrites) Version(own string) string     { return apply(r.version, own) }

func (r *rewrites) ReplaceReferences([]byte, Replace) error { return nil }

func apply(by func(own string) string, own string) string {
	if by == nil {
		return own
	}
	return by(own)
}

// TestManyOwners fails if an object with many owners, which a cluster stores, breaks the lists of all clusters.
func TestManyOwners(t *testing.T) {
	const owners = 200_000
	in := `{"metadata":{"name":"x","ownerReferences":[` + strings.Repeat(`{"name":"y","uid":"1"},`, owners) +
		`{"name":"y"}]}}`
	object := parseObject(t, in)
	a := NewAnnotator("c", &rewrites{name: func(own string) string { return own + "@c" }})
	var got []byte
	var err error
	n := alloctest.Allocated(func() { got, err = a.Append(make([]byte, 0, 2*len(in)), object) })
	if err != nil || strings.Count(string(got), `{"name":"y@c"`) != owners+1 || !strings.HasPrefix(string(got),
		`{"metadata":{"annotations":{"`+SourceAnnotation+`":"c"},"name":"x@c"`) {
		t.Errorf("%.200s, %v", got, err)
	}
	if limit := uint64(20 * len(in)); n > limit {
		t.Errorf("%d MiB were allocated in sum, want %d at most", n>>20, limit>>20)
	}
}

// TestMetadataNull checks that an object without metadata gets the annotation, like one whose metadata is null.
func TestMetadataNull(t *testing.T) {
	const pair = `"` + SourceAnnotation + `":"c"`
	for in, want := range map[string]string{
		`{"metadata":null,"a":1}`:            `{"metadata":{"annotations":{` + pair + `}},"a":1}`,
		`{"a":1}`:                            `{"metadata":{"annotations":{` + pair + `}},"a":1}`,
		"{\"metadata\":{\"name\":\"\xff\"}}": `{"metadata":{"annotations":{` + pair + `},"name":"` + "\ufffd" + `"}}`,
	} {
		if got, err := NewAnnotator("c", nil).Append(nil, parseObject(t, in)); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v", in, got, err)
		}
	}
}

// TestNames would fail if other text than the names of an object and of its owners changed.
func TestNames(t *testing.T) {
	const pair = `"resource.karmada.io/cached-from-cluster":"c"`
	const applied = `"kubectl.kubernetes.io/last-applied-configuration":`
	a := NewAnnotator("c", &rewrites{name: func(own string) string {
		if own == "stays" {
			return own
		}
		return own + "@<c>"
	}})
	for in, want := range map[string]string{
		`{"metadata":{"name":"x"},"spec":{"name":"y","nodeName":"n"}}`: `{"metadata":{"annotations":{` + pair +
			`},"name":"x@<c>"},"spec":{"name":"y","nodeName":"n"}}`,
		`{"metadata":{"name" : "\u0078"}}`: `{"metadata":{"annotations":{` + pair +
			`},"name" : "x@<c>"}}`,
		`{"metadata":{"name":"stays"}}`: `{"metadata":{"annotations":{` + pair +
			`},"name":"stays"}}`,
		`{"metadata":{"name":"","generateName":"x","labels":{"name":"x"}}}`: `{"metadata":{"annotations":{` + pair +
			`},"name":"","generateName":"x","labels":{"name":"x"}}}`,
		`{"metadata":{"name":7,"ownerReferences":{"name":"x"}}}`: `{"metadata":{"annotations":{` + pair +
			`},"name":7,"ownerReferences":{"name":"x"}}}`,
		`{"metadata":{"ownerReferences":[{"kind":"A","name":"x","x":{"name":"x"}},null,{},{"name":"y"}],"annotations":` +
			`{"name":"x"},"managedFields":[{"name":"x"}]}}`: `{"metadata":{"ownerReferences":[{"kind":"A","name":"x@<c>",` +
			`"x":{"name":"x"}},null,{},{"name":"y@<c>"}],"annotations":{` + pair + `,"name":"x"},"managedFields":` +
			`[{"name":"x"}]}}`,
		`{"metadata":{"annotations":{"a":"b",` + applied +
			`"{\"metadata\":{\"name\":\"x\",\"ownerReferences\":[{\"name\":\"y\"}]},\"n\":1e3}\n"},"name":"x"}}`: `{` +
			`"metadata":{"annotations":{` + pair + `,"a":"b",` + applied + `"{\"metadata\":{\"name\":\"x@<c>\",` +
			`\"ownerReferences\":[{\"name\":\"y@<c>\"}]},\"n\":1e3}\n"},"name":"x@<c>"}}`,
		`{"metadata":{"annotations":{` + applied + `"no object"}}}`: `{"metadata":{"annotations":{` + pair + `,` + applied +
			`"no object"}}}`,
	} {
		if got, err := a.Append(nil, parseObject(t, in)); err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
}

// TestInNamespace would fail if an object lost its namespace, or if Namespace returned the replacement.
func TestInNamespace(t *testing.T) {
	a := NewAnnotator("c", &rewrites{inNamespace: func(own string) string { return own + "@c" }})
	for in, want := range map[string]string{
		`{"metadata":{"namespace":"x"}}`: `{"metadata":{"annotations":{"resource.karmada.io/cached-from-cluster":"c"},` +
			`"namespace":"x@c"}}`,
		`{"metadata":{"namespace":"x","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":` +
			`{\"namespace\":\"x\"}}"}}}`: `{"metadata":{"namespace":"x@c","annotations":` +
			`{"resource.karmada.io/cached-from-cluster":"c",` +
			`"kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":{\"namespace\":\"x@c\"}}"}}}`,
	} {
		if got, err := a.Append(nil, parseObject(t, in)); err != nil || string(got) != want || a.Namespace() != "x" {
			t.Errorf("%s\n got %s of %q, %v\nwant %s", in, got, a.Namespace(), err, want)
		}
	}
	if got, err := a.Append(nil, parseObject(t, `{"metadata":{"namespace":""}}`)); err != nil ||
		strings.Contains(string(got), "@") || a.Namespace() != "" {
		t.Errorf("%s, %v", got, err)
	}
}

// FuzzAnnotate would fail if encoding/json read any difference besides the annotation.
func FuzzAnnotate(f *testing.F) {
	for _, s := range []string{`{}`,
		`{"a":1,"metadata":{"annotations":{"x":"y","resource.karmada.io/cached-from-cluster":"z"},"name":"n"}}`,
		`{"metadata":{"annotations":null}}`, `{"metadata":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var want map[string]any
		if !jsontext.Value(in).IsValid() || json.Unmarshal([]byte(in), &want) != nil || want == nil {
			return
		}
		got, err := NewAnnotator("c", nil).Append(nil, parseObject(t, in))
		if err != nil {
			return
		}
		again, err := NewAnnotator("c", &rewrites{}).Append(nil, parseObject(t, in))
		if err != nil || string(again) != string(got) {
			t.Fatalf("%s becomes %s, and with unchanged names %s, %v", in, got, again, err)
		}
		var annotated map[string]any
		if err := json.Unmarshal(got, &annotated); err != nil {
			t.Fatalf("%s becomes %s: %v", in, got, err)
		}
		m, _ := want["metadata"].(map[string]any)
		if m == nil {
			m = map[string]any{}
			want["metadata"] = m
		}
		annotations, _ := m["annotations"].(map[string]any)
		if annotations == nil {
			annotations = map[string]any{}
			m["annotations"] = annotations
		}
		annotations[SourceAnnotation] = "c"
		if !reflect.DeepEqual(annotated, want) {
			t.Fatalf("%s becomes %s", in, got)
		}
	})
}

// FuzzSource would fail if a broken list were read without an error, or if an object were invalid JSON.
func FuzzSource(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"a":1},{"b":[]}]}`), 3)
	f.Add([]byte(`{"kind":"Table","metadata":{},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a"],`+
		`"object":{}}]}`), 1)
	f.Fuzz(func(t *testing.T, in []byte, _ int) {
		_, objects, err := read(strings.NewReader(string(in)))
		_, slowly, slowErr := read(iotest.OneByteReader(strings.NewReader(string(in))))
		if (err == nil) != (slowErr == nil) || !reflect.DeepEqual(objects, slowly) {
			t.Fatalf("%q in one piece: %q, %v; byte by byte: %q, %v", in, objects, err, slowly, slowErr)
		}
		for _, o := range objects {
			if !jsontext.Value(o).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
				t.Fatalf("%q gives %q", in, o)
			}
		}
		if err == nil && !json.Valid(in) {
			t.Fatalf("%q is read as a list", in)
		}
	})
}

func parseObject(t *testing.T, text string) Object {
	t.Helper()
	o, err := ObjectOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// podList returns a list of n pods in JSON, each of about 3 KB.
func podList(n int) string {
	container := `{"name":"web","image":"registry.example.com/shop/web:1.27.3","env":[` +
		strings.Repeat(`{"name":"SETTING","value":"a value that \"says\" something"},`, 20) +
		`{"name":"LAST"}],"resources":{},"ports":[{"containerPort":80}]}`
	object := `{"metadata":{"name":"web-7d9f4c6b58-x2x5p","namespace":"shop",` +
		`"uid":"6d1f3c0e-7d0c-4f6b-9f0e-3b1f7f3a2c11",` +
		`"resourceVersion":"1001","labels":{"app":"web"},"annotations":{"k":"v"},` +
		`"ownerReferences":[{"kind":"ReplicaSet","name":"web-7d9f4c6b58"}]},"spec":{"containers":[` +
		container + "," + container + `]},"status":{"phase":"Running"}}`
	return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` +
		strings.Repeat(object+",", n-1) + object + "]}"
}

// BenchmarkList annotates the objects of a list, with their own names and with names of the form name@cluster.
func BenchmarkList(b *testing.B) {
	list := podList(1000)
	for name, by := range map[string]Rewriter{"as they are": nil,
		"name@cluster": &rewrites{name: func(own string) string { return own + "@c" }}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(list)))
			var dst []byte
			for b.Loop() {
				s, err := Open("c", strings.NewReader(list))
				if err != nil {
					b.Fatal(err)
				}
				a := NewAnnotator("c", by)
				for err == nil {
					var o Object
					if o, err = s.Next(); err == nil {
						dst, err = a.Append(dst[:0], o)
					}
				}
				if !errors.Is(err, io.EOF) || s.Read != 1000 {
					b.Fatal(s.Read, err)
				}
			}
		})
	}
}
