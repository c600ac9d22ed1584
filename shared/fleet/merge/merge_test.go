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

// read reads a whole list and returns its objects.
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
		early    bool // it comes before the objects
		objects  []string
		kind     string
	}{
		"kube-apiserver": {`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"abc","remainingItemCount":7},"items":[{"a":1},{"b":"]}\""}]}` + "\n",
			full, true, []string{`{"a":1}`, `{"b":"]}\""}`}, "PodList"},
		"of a CRD":     {`{"apiVersion":"v1","items":[{"a":1}],"kind":"WidgetList","metadata":{"resourceVersion":"12"}}`, &Metadata{ResourceVersion: "12"}, false, []string{`{"a":1}`}, "WidgetList"},
		"empty":        {`{"kind":"PodList","metadata":{"resourceVersion":"12"},"items":[]}`, &Metadata{ResourceVersion: "12"}, true, nil, "PodList"},
		"null":         {`{"kind":"PodList","metadata":{"resourceVersion":"12"},"items":null}`, &Metadata{ResourceVersion: "12"}, true, nil, "PodList"},
		"without":      {`{"kind":"PodList","metadata":{}}`, &Metadata{}, true, nil, "PodList"},
		"a table":      {`{"kind":"Table","metadata":{},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a"]}]}`, &Metadata{}, true, []string{`{"cells":["a"]}`}, "Table"},
		"more fields":  {`{"kind":"PodList","x":[{"items":[1]}],"metadata":{},"items":[{"a":1}],"y":{}}`, &Metadata{}, true, []string{`{"a":1}`}, "PodList"},
		"pretty JSON":  {"{\n \"kind\": \"PodList\",\n \"metadata\": {},\n \"items\": [\n  {\"a\": 1},\n  {\"b\": 2}\n ]\n}\n", &Metadata{}, true, []string{`{"a": 1}`, `{"b": 2}`}, "PodList"},
		"large object": {`{"kind":"PodList","metadata":{},"items":[{"a":"` + strings.Repeat("x", 8_000) + `"}]}`, &Metadata{}, true, []string{`{"a":"` + strings.Repeat("x", 8_000) + `"}`}, "PodList"},
	} {
		s, err := Open("m", strings.NewReader(tt.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if (s.Metadata() != nil) != tt.early {
			t.Errorf("%s: metadata came early: %v", name, s.Metadata() != nil)
		}
		for split, r := range map[string]io.Reader{"whole": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in))} {
			s, objects, err := read(r)
			if err != nil {
				t.Errorf("%s, %s: %v", name, split, err)
				continue
			}
			if !reflect.DeepEqual(objects, tt.objects) || !reflect.DeepEqual(s.Metadata(), tt.metadata) || s.Kind != tt.kind || s.Read != len(tt.objects) {
				t.Errorf("%s, %s: %d objects %.100q, metadata %+v, kind %q", name, split, s.Read, objects, s.Metadata(), s.Kind)
			}
		}
	}
}

// TestSourceRefuses holds: what is not a whole list of Kubernetes' is an error, wherever it breaks off.
func TestSourceRefuses(t *testing.T) {
	whole := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[{"a":{"b":[1,"x"]}},{"c":2}]}`
	for i := range whole {
		if _, _, err := read(strings.NewReader(whole[:i])); err == nil {
			t.Errorf("%s is taken for whole", whole[:i])
		}
	}
	for _, in := range []string{
		whole + "x", whole + whole, `[]`, `"x"`, `{}`, `{"kind":"Pod","metadata":{}}`, `{"kind":"PodList","items":[]}`,
		`{"kind":"PodList","metadata":{},"items":[1]}`, `{"kind":"PodList","metadata":{},"items":{}}`, `{"kind":"PodList","metadata":{},"items":[{]}}`, `{"kind":"PodList","metadata":{},"items":[],"items":[{"a":1}]}`,
		`{"kind":"Table","metadata":{},"rows":[],"columnDefinitions":[]}`, `{"kind":1,"metadata":{},"items":[]}`, `{"kind":"PodList","metadata":{},"items":[{"a":1} {"b":2}]}`,
	} {
		if _, objects, err := read(strings.NewReader(in)); err == nil {
			t.Errorf("%s is taken for a list of %q", in, objects)
		}
	}
	endless := io.MultiReader(strings.NewReader(`{"kind":"PodList","metadata":{},"items":[{"a":"`), endlessX{})
	if _, _, err := read(endless); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an object without end: %v", err)
	}
}

// TestLongContinue holds: a continue token that would not pass through URLs is the list's fault, wherever it stands, also if it is long as JSON
// alone.
func TestLongContinue(t *testing.T) {
	for token, want := range map[string]bool{
		strings.Repeat("x", MaxContinue-2): true, strings.Repeat("x", MaxContinue-1): false, strings.Repeat(`\u0000`, MaxContinue/6+1): false,
	} {
		for _, list := range []string{`{"kind":"PodList","metadata":{"continue":"%s"},"items":[{"a":1}]}`, `{"apiVersion":"v1","items":[{"a":1}],"kind":"WidgetList","metadata":{"continue":"%s"}}`} {
			_, _, err := read(strings.NewReader(fmt.Sprintf(list, token)))
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), `cluster "m" cannot be read: its continue token is over 8 KiB`) {
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
		`{"metadata":{"annotations":{` + strings.Replace(pair, `"c"`, `"lie"`, 1) + `,"a":"b"}}}`: `{"metadata":{"annotations":{` + pair + `,"a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b",` + pair + `}}}`:                                     `{"metadata":{"annotations":{` + pair + `,"a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b", ` + pair + `, "d":"e"}}}`:                           `{"metadata":{"annotations":{` + pair + `,"a":"b", "d":"e"}}}`,
		`{"metadata":{},"spec":{"metadata":{"a":"\u003c"},"b":"metadata"}}`:                       `{"metadata":{"annotations":{` + pair + `}},"spec":{"metadata":{"a":"\u003c"},"b":"metadata"}}`,
		`{"spec":{"metadata":{"annotations":{}}},"metadata":{"name":"x"}}`:                        `{"spec":{"metadata":{"annotations":{}}},"metadata":{"annotations":{` + pair + `},"name":"x"}}`,
	} {
		got, err := NewAnnotator("c").Append(nil, of(t, in))
		if err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
	a := NewAnnotator("c")
	if _, err := a.Append(nil, of(t, `{"metadata":{"name":"x","namespace":"ns"}}`)); err != nil || a.Namespace() != "ns" {
		t.Errorf("namespace %q, %v", a.Namespace(), err)
	}
	a.Version = func(own string) string { return own + "0" }
	for in, want := range map[string]string{
		`{"metadata":{"resourceVersion":"5","annotations":{"a":"b"}}}`:              `{"metadata":{"resourceVersion":"50","annotations":{` + pair + `,"a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b",` + pair + `},"resourceVersion":"5"}}`: `{"metadata":{"annotations":{` + pair + `,"a":"b"},"resourceVersion":"50"}}`,
		`{"metadata":{"resourceVersion":"5"}}`:                                      `{"metadata":{"annotations":{` + pair + `},"resourceVersion":"50"}}`,
		`{"metadata":{"name":"x"}}`:                                                 `{"metadata":{"annotations":{` + pair + `},"name":"x"}}`,
	} {
		if got, err := a.Append(nil, of(t, in)); err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
	a.Name = func(own string) string { return own + "@c" }
	for _, in := range []string{`{"metadata":1}`, `{"metadata":{"annotations":[]}}`,
		// Twice.
		`{"metadata":{"name":"x"},"metadata":{"annotations":{}}}`, `{"metadata":{"name":"x"},"spec":{},"metad\u0061ta":{}}`, `{"metadata":{"name":"x","annotations":{},"annotations":null}}`,
		`{"metadata":{"resourceVersion":"1","resourceVersion":"2"}}`, `{"metadata":{"annotations":{` + pair + `,"a":"b",` + pair + `}}}`,
		`{"metadata":{"name":"x","n\u0061me":"y"}}`, `{"metadata":{"ownerReferences":[{"name":"x","name":"y"}]}}`, `{"metadata":{"annotations":{"` + LastApplied + `":"{}","` + LastApplied + `":"{}"}}}`,
		`{"metadata":{"annotations":{},"namespace":"x","namespace":"y"}}`,
	} {
		if got, err := a.Append(nil, of(t, in)); err == nil {
			t.Errorf("%s becomes %s", in, got)
		}
	}
}

// TestManyOwners checks that owners have no limit: an object that a cluster stores would otherwise break the lists of
// all clusters. Memory is bounded by the result.
func TestManyOwners(t *testing.T) {
	const owners = 200_000
	in := `{"metadata":{"name":"x","ownerReferences":[` + strings.Repeat(`{"name":"y","uid":"1"},`, owners) +
		`{"name":"y"}]}}`
	object := of(t, in)
	a := NewAnnotator("c")
	a.Name = func(own string) string { return own + "@c" }
	var got []byte
	var err error
	n := alloctest.Allocated(func() { got, err = a.Append(make([]byte, 0, 2*len(in)), object) })
	if err != nil || strings.Count(string(got), `{"name":"y@c"`) != owners+1 || !strings.HasPrefix(string(got),
		`{"metadata":{"annotations":{"`+SourceAnnotation+`":"c"},"name":"x@c"`) {
		t.Errorf("%.200s, %v", got, err)
	}
	if most := uint64(20 * len(in)); n > most {
		t.Errorf("%d MiB were allocated in sum, want %d at most", n>>20, most>>20)
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
		if got, err := NewAnnotator("c").Append(nil, of(t, in)); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v", in, got, err)
		}
	}
}

// TestNames holds: names are replaced where an object has its own and its owners', and nowhere else.
func TestNames(t *testing.T) {
	const pair = `"resource.karmada.io/cached-from-cluster":"c"`
	const applied = `"kubectl.kubernetes.io/last-applied-configuration":`
	a := NewAnnotator("c")
	a.Name = func(own string) string {
		if own == "stays" {
			return own
		}
		return own + "@<c>"
	}
	for in, want := range map[string]string{
		`{"metadata":{"name":"x"},"spec":{"name":"y","nodeName":"n"}}`:      `{"metadata":{"annotations":{` + pair + `},"name":"x@<c>"},"spec":{"name":"y","nodeName":"n"}}`,
		`{"metadata":{"name" : "\u0078"}}`:                                  `{"metadata":{"annotations":{` + pair + `},"name" : "x@<c>"}}`,
		`{"metadata":{"name":"stays"}}`:                                     `{"metadata":{"annotations":{` + pair + `},"name":"stays"}}`,
		`{"metadata":{"name":"","generateName":"x","labels":{"name":"x"}}}`: `{"metadata":{"annotations":{` + pair + `},"name":"","generateName":"x","labels":{"name":"x"}}}`,
		`{"metadata":{"name":7,"ownerReferences":{"name":"x"}}}`:            `{"metadata":{"annotations":{` + pair + `},"name":7,"ownerReferences":{"name":"x"}}}`,
		`{"metadata":{"ownerReferences":[{"kind":"A","name":"x","x":{"name":"x"}},null,{},{"name":"y"}],"annotations":{"name":"x"},"managedFields":[{"name":"x"}]}}`: `{"metadata":{"ownerReferences":[{"kind":"A","name":"x@<c>","x":{"name":"x"}},null,{},{"name":"y@<c>"}],"annotations":{` + pair + `,"name":"x"},"managedFields":[{"name":"x"}]}}`,
		`{"metadata":{"annotations":{"a":"b",` + applied + `"{\"metadata\":{\"name\":\"x\",\"ownerReferences\":[{\"name\":\"y\"}]},\"n\":1e3}\n"},"name":"x"}}`:      `{"metadata":{"annotations":{` + pair + `,"a":"b",` + applied + `"{\"metadata\":{\"name\":\"x@<c>\",\"ownerReferences\":[{\"name\":\"y@<c>\"}]},\"n\":1e3}\n"},"name":"x@<c>"}}`,
		`{"metadata":{"annotations":{` + applied + `"no object"}}}`: `{"metadata":{"annotations":{` + pair + `,` + applied + `"no object"}}}`,
	} {
		if got, err := a.Append(nil, of(t, in)); err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
}

// TestInNamespace holds: the namespace is replaced with the names, and known as it was.
func TestInNamespace(t *testing.T) {
	a := NewAnnotator("c")
	a.Name = func(own string) string { return own }
	a.InNamespace = func(own string) string { return own + "@c" }
	for in, want := range map[string]string{
		`{"metadata":{"namespace":"x"}}`: `{"metadata":{"annotations":{"resource.karmada.io/cached-from-cluster":"c"},"namespace":"x@c"}}`,
		`{"metadata":{"namespace":"x","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":{\"namespace\":\"x\"}}"}}}`: `{"metadata":{"namespace":"x@c","annotations":{"resource.karmada.io/cached-from-cluster":"c","kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":{\"namespace\":\"x@c\"}}"}}}`,
	} {
		if got, err := a.Append(nil, of(t, in)); err != nil || string(got) != want || a.Namespace() != "x" {
			t.Errorf("%s\n got %s of %q, %v\nwant %s", in, got, a.Namespace(), err, want)
		}
	}
	if got, err := a.Append(nil, of(t, `{"metadata":{"namespace":""}}`)); err != nil || strings.Contains(string(got), "@") || a.Namespace() != "" {
		t.Errorf("%s, %v", got, err)
	}
}

// FuzzAnnotate holds: with the annotation an object is the same and has it, as encoding/json reads both.
func FuzzAnnotate(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"metadata":{"annotations":{"x":"y","resource.karmada.io/cached-from-cluster":"z"},"name":"n"}}`, `{"metadata":{"annotations":null}}`, `{"metadata":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var want map[string]any
		if !jsontext.Value(in).IsValid() || json.Unmarshal([]byte(in), &want) != nil || want == nil {
			return
		}
		a := NewAnnotator("c")
		got, err := a.Append(nil, of(t, in))
		if err != nil {
			return
		}
		a.Name = func(own string) string { return own }
		if again, err := a.Append(nil, of(t, in)); err != nil || string(again) != string(got) {
			t.Fatalf("%s becomes %s, and with the names that it has %s, %v", in, got, again, err)
		}
		var have map[string]any
		if err := json.Unmarshal(got, &have); err != nil {
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
		if !reflect.DeepEqual(have, want) {
			t.Fatalf("%s becomes %s", in, got)
		}
	})
}

// FuzzSource holds: whatever comes in, what is taken for objects is valid JSON, and a list is whole or an error.
func FuzzSource(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"a":1},{"b":[]}]}`), 3)
	f.Add([]byte(`{"kind":"Table","metadata":{},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a"],"object":{}}]}`), 1)
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
			t.Fatalf("%q is taken for a list", in)
		}
	})
}

func TestLayout(t *testing.T) {
	column := func(name, format string) Column {
		return Column{name, format, jsontext.Value(`{"name":"` + name + `","format":"` + format + `"}`)}
	}
	old := []Column{column("Name", "name"), column("Ready", ""), column("Age", "")}
	newer := []Column{column("Name", "name"), column("Ready", ""), column("Phase", ""), column("Age", ""), column("IP", "")}
	l := NewLayout(old, newer)
	var names []string
	for _, c := range l.Columns {
		names = append(names, c.Name)
	}
	if want := []string{"Name", "", "Ready", "Phase", "Age", "IP"}; !reflect.DeepEqual(names, want) {
		t.Errorf("columns %q, want %q", names, want)
	}
	var defs []struct{ Name string }
	if err := json.Unmarshal(l.Definitions(), &defs); err != nil || len(defs) != 6 || defs[1].Name != "Cluster" {
		t.Errorf("%s, %v", l.Definitions(), err)
	}
	for _, tt := range []struct {
		cluster, suffix string
		table           []Column
		row, want       string
	}{
		{"a", "", old, `{"cells":["x","1/1","5d"]}`, `{"cells":["x","a","1/1",null,"5d",null]}`},
		{"b", "", newer, `{"cells":["x","1/1",{"p":1},"5d","::1"],"object":{"metadata":{"name":"x"}}}`,
			`{"cells":["x","b","1/1",{"p":1},"5d","::1"],"object":{"metadata":{"annotations":{"resource.karmada.io/cached-from-cluster":"b"},"name":"x"}}}`},
		{"b", "@b", []Column{column("Ready", "")}, `{"cells":["1/1"]}`, `{"cells":[null,"b","1/1",null,null,null]}`},
		{"b", "", newer, `{"cells":["y"],"cells":["x",` + strings.Repeat("1,", 100) + `1]}`, `{"cells":["x","b",1,1,1,1]}`},
		{"b", "", newer, `{"cells":7}`, `{"cells":[null,"b",null,null,null,null]}`},
		{"b", "@b", newer, `{"cells":[null,7]}`, `{"cells":[null,"b",7,null,null,null]}`},
		{"b", "@b", newer, `{"cells":["x"],"conditions":[{"type":"Completed"}],"object":null}`, `{"cells":["x@b","b",null,null,null,null],"conditions":[{"type":"Completed"}]}`},
	} {
		got, err := l.For(tt.cluster, tt.table, objects{NewAnnotator(tt.cluster), tt.suffix}).Append(nil, of(t, tt.row))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s\n got %s, %v\nwant %s", tt.row, got, err, tt.want)
		}
	}
	if got := NewLayout([]Column{column("X", ""), column("NAME", "")}); got.Columns[2].Name != "" {
		t.Errorf("without a column of format name: %+v", got.Columns)
	}
	// What has no names has none to be replaced.
	l = NewLayout([]Column{column("Ready", "")})
	if got, err := l.For("b", l.Columns[:1], objects{NewAnnotator("b"), "@b"}).Append(nil, of(t, `{"cells":["1/1"]}`)); err != nil || string(got) != `{"cells":["1/1","b"]}` {
		t.Errorf("a table without names: %s, %v", got, err)
	}
	if got := NewLayout(nil); len(got.Columns) != 1 {
		t.Errorf("without columns: %+v", got.Columns)
	}
}

// of is the object that text is.
func of(t *testing.T, text string) Object {
	t.Helper()
	o, err := ObjectOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

type objects struct {
	*Annotator
	suffix string
}

func (o objects) Name(own string) string { return own + o.suffix }

// podList returns a list of n pods in JSON, each of about 3 KB.
func podList(n int) string {
	container := `{"name":"web","image":"registry.example.com/shop/web:1.27.3","env":[` +
		strings.Repeat(`{"name":"SETTING","value":"a value that \"says\" something"},`, 20) +
		`{"name":"LAST"}],"resources":{},"ports":[{"containerPort":80}]}`
	object := `{"metadata":{"name":"web-7d9f4c6b58-x2x5p","namespace":"shop","uid":"6d1f3c0e-7d0c-4f6b-9f0e-3b1f7f3a2c11",` +
		`"resourceVersion":"1001","labels":{"app":"web"},"annotations":{"k":"v"},` +
		`"ownerReferences":[{"kind":"ReplicaSet","name":"web-7d9f4c6b58"}]},"spec":{"containers":[` +
		container + "," + container + `]},"status":{"phase":"Running"}}`
	return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` +
		strings.Repeat(object+",", n-1) + object + "]}"
}

// BenchmarkList reads a list and writes its objects with their source, with their own names and as name@cluster.
func BenchmarkList(b *testing.B) {
	list := podList(1000)
	for name, by := range map[string]func(own string) string{"as they are": nil, "name@cluster": func(own string) string { return own + "@c" }} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(list)))
			var dst []byte
			for b.Loop() {
				s, err := Open("c", strings.NewReader(list))
				if err != nil {
					b.Fatal(err)
				}
				a := NewAnnotator("c")
				a.Name = by
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

// TestLayoutWith holds: a layout grows by what further tables have, and not without bound.
func TestLayoutWith(t *testing.T) {
	columns := func(names ...string) (out []Column) {
		for _, n := range names {
			out = append(out, Column{Name: n, Text: jsontext.Value(`{"name":"` + n + `"}`)})
		}
		return out
	}
	text := func(l *Layout) string {
		var out []string
		for _, c := range l.Columns {
			out = append(out, c.Name)
		}
		return strings.Join(out, ",")
	}
	l := NewLayout(columns("Name", "Age"))
	if same := l.With(columns("Age", "Name")); same != l {
		t.Error("it is another, though nothing is new")
	}
	if got := text(l.With(columns("Name", "Ready", "Age", "Node"))); got != "Name,,Ready,Age,Node" || text(l) != "Name,,Age" {
		t.Errorf("%s of %s", got, text(l))
	}
	if got := text(NewLayout().With(columns("Name"))); got != "Name," {
		t.Errorf("from nothing: %s", got)
	}
	bare := NewLayout(columns("Ready")) // no column is a name's
	if got := text(bare.With(columns("Age"))); text(bare) != "Ready," || got != "Ready,,Age" && got != "Ready,Age," {
		t.Errorf("without a name: %s of %s", got, text(bare))
	}
	for i := range 2 * maxColumns {
		l = l.With(columns("Name", fmt.Sprint(i)))
	}
	if len(l.Columns) != maxColumns+1 || text(l.With(columns("Name", "more"))) != text(l) {
		t.Errorf("%d columns", len(l.Columns))
	}
}

// TestLayoutOfMany holds: one table has no more columns than leave the others theirs, and puts none before the name; a column without a name is not
// the cluster's.
func TestLayoutOfMany(t *testing.T) {
	columns := func(n int) (out []Column) {
		for i := range n {
			out = append(out, Column{Name: fmt.Sprint("junk", i), Text: jsontext.Value(`{}`)})
		}
		return out
	}
	definitions := func(n int) jsontext.Value { return jsontext.Value("[" + strings.Repeat(`{},`, n-1) + "{}]") }
	if got, err := Columns(definitions(maxOwnColumns)); err != nil || len(got) != maxOwnColumns {
		t.Errorf("%d, %v", len(got), err)
	}
	if got, err := Columns(definitions(maxOwnColumns + 1)); err != nil || len(got) != maxOwnColumns {
		t.Errorf("a table has as many columns as it likes: %d, %v", len(got), err)
	}
	name := []Column{{Name: "Name", Format: "name", Text: jsontext.Value(`{}`)}}
	junk := append([]Column{{Text: jsontext.Value(`{}`)}}, columns(maxOwnColumns-1)...)
	for what, l := range map[string]*Layout{"at once": NewLayout(name, junk), "later": NewLayout(name).With(junk)} {
		if l.name != 0 || l.Columns[0].Name != "Name" || l.cluster != 1 || len(l.Columns) != maxOwnColumns+2 {
			t.Errorf("%s: the name at %d, the cluster at %d of %d", what, l.name, l.cluster, len(l.Columns))
		}
		row, err := l.For("c", name, objects{NewAnnotator("c"), ""}).Append(nil, of(t, `{"cells":["x"]}`))
		if err != nil || !strings.HasPrefix(string(row), `{"cells":["x","c",null,`) {
			t.Errorf("%s: %s, %v", what, row, err)
		}
	}
	if l := NewLayout(junk, name); l.name < 0 || l.cluster != l.name+1 {
		t.Errorf("the name at %d, the cluster at %d", l.name, l.cluster)
	}
}
