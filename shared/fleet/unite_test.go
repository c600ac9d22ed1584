package fleet

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// TestUniteNull holds: what is valid JSON and no document is an error, on either side.
func TestUniteNull(t *testing.T) {
	const doc = `{"paths":{"/a":{}},"components":{"schemas":{"A":{}}}}`
	for _, pair := range [][2]string{{"null", doc}, {doc, "null"}, {"null", "{}"}, {"null", "null"}, {"[]", doc}, {doc, "1"}} {
		if got, err := uniteSchemas([]byte(pair[0]), []byte(pair[1])); err == nil {
			t.Errorf("%s and %s: %s", pair[0], pair[1], got)
		}
	}
	for _, other := range []string{`{"paths":null,"components":null}`, `{"components":{"schemas":null}}`} {
		for _, pair := range [][2]string{{doc, other}, {other, doc}} {
			var got, want any
			both, err := uniteSchemas([]byte(pair[0]), []byte(pair[1]))
			if err != nil || json.Unmarshal(both, &got) != nil || json.Unmarshal([]byte(doc), &want) != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s and %s: %s, %v", pair[0], pair[1], both, err)
			}
		}
	}
}

// FuzzUnite holds: whatever two members send, uniting panics over nothing, and makes a document or an error.
func FuzzUnite(f *testing.F) {
	for _, doc := range []string{"null", "{}", "[]", "{", `{"paths":null}`, `{"paths":{"/a":{}},"definitions":{"A":1}}`, `{"components":{"schemas":{"A":null}}}`, `{"components":[]}`} {
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
				t.Errorf("%q and %q make %q, which is none to go on with: %v", a, b, both, err)
			}
		}
	})
}

// FuzzUniteBinary holds the same for protobuf: what is united begins with the first, whole, and can be united again.
func FuzzUniteBinary(f *testing.F) {
	doc := []byte("\x42\x07\x12\x05\x0a\x03/ab\x4a\x05\x0a\x03\x0a\x01A")
	for _, other := range [][]byte{nil, doc, []byte("\x42\x07\x12\x05\x0a\x03/xy"), []byte("\x42\xff"), []byte("\x43\x44"), []byte("\x42\x00\x4a\x00")} {
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
