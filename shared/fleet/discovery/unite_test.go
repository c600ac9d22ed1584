package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

// TestUniteNull fails if a member that sends null as its OpenAPI could break the document of the others.
func TestUniteNull(t *testing.T) {
	const doc = `{"paths":{"/a":{}},"components":{"schemas":{"A":{}}}}`
	for _, pair := range [][2]string{{"null", doc}, {doc, "null"}, {"null", "{}"}, {"null", "null"}, {"[]", doc},
		{doc, "1"}} {
		if got, err := uniteSchemas([]byte(pair[0]), []byte(pair[1])); err == nil {
			t.Errorf("%s and %s: %s", pair[0], pair[1], got)
		}
	}
	for _, other := range []string{`{"paths":null,"components":null}`, `{"components":{"schemas":null}}`} {
		for _, pair := range [][2]string{{doc, other}, {other, doc}} {
			var got, want any
			both, err := uniteSchemas([]byte(pair[0]), []byte(pair[1]))
			if err != nil || json.Unmarshal(both, &got) != nil || json.Unmarshal([]byte(doc), &want) != nil ||
				!reflect.DeepEqual(got, want) {
				t.Errorf("%s and %s: %s, %v", pair[0], pair[1], both, err)
			}
		}
	}
}

// FuzzUnite fails if two members could make the gateway panic, or send a client a document that is malformed.
func FuzzUnite(f *testing.F) {
	for _, doc := range []string{"null", "{}", "[]", "{", `{"paths":null}`, `{"paths":{"/a":{}},"definitions":{"A":1}}`,
		`{"components":{"schemas":{"A":null}}}`, `{"components":[]}`} {
		f.Add([]byte(doc), []byte(`{"paths":{"/b":{}},"components":{"schemas":{"B":{}}},"definitions":{"B":{}}}`))
		f.Add([]byte(`{"paths":{"/b":{}},"components":{"schemas":{"B":{}}},"definitions":{"B":{}}}`), []byte(doc))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, unite := range []func(a, b []byte) ([]byte, error){uniteSchemas, uniteSwagger} {
			both, err := unite(a, b)
			if err != nil {
				continue
			}
			var doc map[string]json.RawMessage
			if json.Unmarshal(both, &doc) != nil || doc == nil {
				t.Errorf("%q and %q: %q", a, b, both)
			}
			if _, err := unite(both, []byte("{}")); err != nil {
				t.Errorf("%q and %q make %q, which cannot be united further: %v", a, b, both, err)
			}
		}
	})
}

// FuzzUniteBinary is FuzzUnite for protobuf. The result begins with the first document, and can be united again.
func FuzzUniteBinary(f *testing.F) {
	doc := []byte("\x42\x07\x12\x05\x0a\x03/ab\x4a\x05\x0a\x03\x0a\x01A")
	for _, other := range [][]byte{nil, doc, []byte("\x42\x07\x12\x05\x0a\x03/xy"), []byte("\x42\xff"),
		[]byte("\x43\x44"), []byte("\x42\x00\x4a\x00")} {
		f.Add(doc, other)
		f.Add(other, doc)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		both, err := uniteBinary(a, b)
		if err != nil {
			return
		}
		if !bytes.HasPrefix(both, a) {
			t.Errorf("%q and %q: %q", a, b, both)
		}
		if again, err := uniteBinary(both, b); err != nil || !bytes.Equal(again, both) {
			t.Errorf("%q and %q make %q, and with the second again %q, %v", a, b, both, again, err)
		}
	})
}

// TestUniteBounded fails if a member could exhaust the gateway's memory by many names in one object of a document.
func TestUniteBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	of := func(from, n int) []byte {
		var doc strings.Builder
		doc.WriteString(`{"openapi":"3","components":{"schemas":{"":0`)
		for i := range n - 1 {
			fmt.Fprintf(&doc, `,"%d":{}`, from+i)
		}
		doc.WriteString(`}}}`)
		return []byte(doc.String())
	}
	empty := []byte("{}")
	both, err := uniteSchemas(of(0, maxNames), of(maxNames, maxNames))
	if err != nil || !bytes.Contains(both, []byte(`"99997":{}`)) {
		t.Fatal(err)
	}
	if _, err := uniteSchemas(empty, of(0, maxNames)); err != nil {
		t.Error(err)
	}
	for name, pair := range map[string][2][]byte{
		"the first":   {empty, of(0, maxNames+1)},
		"a later one": {of(0, 1), of(0, maxNames+1)},
		"both":        {both, of(2*maxNames, 10)},
		"far more":    {empty, of(0, 1<<20)},
	} {
		var err error
		n := alloctest.Allocated(func() { _, err = uniteSchemas(pair[0], pair[1]) })
		if !errors.Is(err, errManyNames) || n > 64<<20 {
			t.Errorf("%s: %v, %d MiB", name, err, n>>20)
		}
	}
}

func binaryOf(entries ...[]byte) []byte {
	var paths []byte
	for _, e := range entries {
		paths = protowire.AppendBytes(protowire.AppendTag(paths, binaryParts[0].entries, protowire.BytesType), e)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, binaryParts[0].field, protowire.BytesType), paths)
}

func TestUniteBinaryBounded(t *testing.T) {
	named := func(names ...string) (entry []byte) {
		for _, name := range names {
			entry = protowire.AppendString(protowire.AppendTag(entry, binaryName, protowire.BytesType), name)
		}
		return entry
	}
	doc := binaryOf(named(strings.Split(strings.Repeat("a,", 1000), ",")...))
	both, err := uniteBinary(nil, doc)
	if err != nil || len(both) != len(doc) {
		t.Errorf("%d bytes became %d, %v", len(doc), len(both), err)
	}
	entries := func(from, n int) (out [][]byte) {
		for i := range n {
			out = append(out, named(fmt.Sprint(from+i)))
		}
		return out
	}
	both, err = uniteBinary(binaryOf(entries(0, maxNames)...), binaryOf(entries(maxNames, maxNames)...))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2][]byte{"a member's": {nil, binaryOf(entries(0, maxNames+1)...)},
		"both": {both, binaryOf(entries(2*maxNames, 1)...)}} {
		if _, err := uniteBinary(pair[0], pair[1]); !errors.Is(err, errManyNames) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemasSize fails if indexes could exhaust the gateway's memory, because the cache did not count them.
func TestSchemasSize(t *testing.T) {
	index := map[string][]source{strings.Repeat("p", 500): make([]source, 10)}
	d := &schema{body: make([]byte, 1000), index: index}
	if size := d.size(); size < 1500+10*sourceSize {
		t.Errorf("it counts for %d bytes", size)
	}
}
