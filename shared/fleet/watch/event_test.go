package watch

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// TestEventsAreCopies fails if an event could change while later ones are read, or if a long watch ended.
func TestEventsAreCopies(t *testing.T) {
	const n, size = 20, 1 << 20
	var body strings.Builder
	for i := range n {
		fmt.Fprintf(&body, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p%d",`+
			`"resourceVersion":"%d"},"data":"%s"}}`+"\n", i, i+1, strings.Repeat(string(rune('a'+i)), size))
	}
	f := newFollower(n)
	if err := f.read(t.Context(), strings.NewReader(body.String()), func() {}); err != nil {
		t.Fatal(err)
	}
	close(f.events)
	i := 0
	for e := range f.events {
		if !bytes.Contains(e.object.Text, []byte(`"data":"`+strings.Repeat(string(rune('a'+i)), size)+`"`)) ||
			e.version != fmt.Sprint(i+1) || e.kind.Kind != "Pod" {
			t.Errorf("event %d is %.100s", i, e.object.Text)
		}
		i++
	}
	if i != n {
		t.Errorf("%d events", i)
	}
	large := io.MultiReader(strings.NewReader(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"},"data":"`),
		strings.NewReader(strings.Repeat("x", merge.MaxObject)), strings.NewReader(`"}}`))
	if err := f.read(t.Context(), large, func() {}); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("an event that is too large: %v", err)
	}
}

// TestListedEventsAreCopies fails if an event of a list could change while the list is read.
func TestListedEventsAreCopies(t *testing.T) {
	const n, size = 20, 1 << 20
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"data":"%s"}`,
			strings.Repeat(string(rune('a'+i)), size)))
	}
	s, err := merge.Open("a", strings.NewReader(`{"kind":"PodList","apiVersion":"v1","metadata":`+
		`{"resourceVersion":"1"},"items":[`+strings.Join(items, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	f, l := newFollower(n), &listing{Source: s}
	for range n {
		if l.object, err = l.Next(); err != nil || !f.sendListed(t.Context(), added, l) {
			t.Fatal(err)
		}
	}
	for i := range n {
		if e := <-f.events; string(e.object.Text) != items[i] {
			t.Errorf("event %d is %.100s", i, e.object.Text)
		}
	}
}

// TestEventRefuses fails if a client could get an event with duplicate or missing fields.
func TestEventRefuses(t *testing.T) {
	const object = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","resourceVersion":"1"}}`
	for in, want := range map[string]string{
		`{"type":"ADDED","object":` + object + `,"object":` + object + `}`: "cannot be read",
		`{"type":"ADDED"}`:                                       "cannot be read",
		`{"type":7,"object":` + object + `}`:                     "of type",
		`{"type":"OTHER","object":` + object + `}`:               "of type",
		`{"type":"ADDED","object":{"kind":"Pod","metadata":{}}}`: "without a resourceVersion",
		`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1",` +
			`"metadata":{"resourceVersion":"1"}}}`: "cannot be read",
		`{"type":"ADDED","object":` + object: "broke off",
		`["ADDED"]`:                          "broke off",
		`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},` +
			`"rows":[{"cells":[]},{"cells":[]}]}}`: "cannot be read",
	} {
		f := newFollower(1)
		if err := f.read(t.Context(), strings.NewReader(in), func() {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// TestKindOf fails if decoders could find another kind in an object than the gateway.
func TestKindOf(t *testing.T) {
	pod := metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	votes := newKindVotes()
	for in, want := range map[string]metav1.TypeMeta{
		`{"metadata":{},"kind":"Pod","apiVersion":"v1"}`: pod, `{"k\u0069nd":"Pod","apiVersion":"v1"}`: pod,
		`{"kind":"Pod","apiVersion":"v1","kind":"Pod"}`: {},
		`{"kind":"Pod","apiVersion":"v1","kind":7}`:     {},
		`{"kind":null,"apiVersion":"v1"}`:               {APIVersion: "v1"},
		`{"kind":7}`:                                    {},
		`{}`:                                            {},
	} {
		o, err := merge.ObjectOf([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := merge.KindOf(o)
		if got != want {
			t.Errorf("%s is %+v", in, got)
		}
		if err := votes.record(event{from: newFollower(0), typ: added, kind: got}); (err == nil) != (want.Kind != "") {
			t.Errorf("%s in a watch: %v", in, err)
		}
	}
	for in, want := range map[string]string{
		`{"metadata":{}}`:                  `{"kind":"Pod","apiVersion":"v1","metadata":{}}`,
		`{}`:                               `{"kind":"Pod","apiVersion":"v1"}`,
		` { }`:                             `{"kind":"Pod","apiVersion":"v1" }`,
		`{"kind":"Pod","apiVersion":"v1"}`: `{"kind":"Pod","apiVersion":"v1"}`, `{"kind":7}`: `{"kind":7}`,
	} {
		o, err := merge.ObjectOf([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got, typ := withKind(o, pod)
		if string(got.Text) != want || (typ == pod) != strings.Contains(want, `"Pod"`) || got.Metadata() != nil &&
			string(got.Metadata()) != "{}" {
			t.Errorf("%s becomes %s of %+v, with the metadata %s", in, got.Text, typ, got.Metadata())
		}
	}
}

// TestRowOf fails if a table in an event could use more memory than it arrived with, or had several rows.
func TestRowOf(t *testing.T) {
	of := func(text string) merge.Object {
		o, err := merge.ObjectOf([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for text, columns := range map[string]int{
		`{"rows":[{"cells":["a"]}]}`:                                       -1,
		`{"columnDefinitions":null,"rows":[{"cells":["a"]}]}`:              0,
		`{"rows":[{"cells":["a"]}],"columnDefinitions":[{"name":"Name"}]}`: 1,
	} {
		row, got, err := rowOf(of(text))
		if err != nil || string(row.Text) != `{"cells":["a"]}` || (got == nil) != (columns < 0) ||
			len(got) != max(0, columns) {
			t.Errorf("%s: %s, %v, %v", text, row.Text, got, err)
		}
	}
	many := strings.Repeat("0,", 1<<20) + "0"
	for _, text := range []string{`{}`, `{"rows":null}`, `{"rows":[]}`, `{"rows":[{},{}]}`, `{"rows":[{}],"rows":[{}]}`,
		`{"rows":[{}],"columnDefinitions":{}}`,
		`{"rows":[` + many + `]}`, `{"rows":[{}],"columnDefinitions":[` + many + `]}`} {
		table, err := of(text), error(nil)
		if n := alloctest.Allocated(func() { _, _, err = rowOf(table) }); err == nil || n > 1<<20 {
			t.Errorf("%.60s: %v, %d bytes", text, err, n)
		}
	}
}
