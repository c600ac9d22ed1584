package merge

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

// TestColumnsBounded holds: a table's columns are counted before they are decoded, and a definition has a bound.
func TestColumnsBounded(t *testing.T) {
	bomb := jsontext.Value("[" + strings.Repeat("{},", 1<<20) + "{}]")
	var err error
	if n := alloctest.Allocated(func() { _, err = Columns(bomb) }); err == nil || n > 1<<20 {
		t.Errorf("%d bytes for what is no table's, %v", n, err)
	}
	definition := func(size int) jsontext.Value {
		const head, tail = `{"name":"a","x":"`, `"}`
		return jsontext.Value("[" + head + strings.Repeat("x", size-len(head)-len(tail)) + tail + "]")
	}
	if got, err := Columns(definition(maxDefinition)); err != nil || len(got) != 1 || got[0].Name != "a" || len(got[0].Text) != maxDefinition {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Columns(definition(maxDefinition + 1)); err == nil {
		t.Error("a definition is as long as it likes")
	}
	for _, none := range []string{"", "{}", "0", `"x"`, "[0]"} {
		if got, err := Columns(jsontext.Value(none)); err == nil {
			t.Errorf("%q: %v", none, got)
		}
	}
	for _, empty := range []string{"null", "[]", "[ ]"} {
		if got, err := Columns(jsontext.Value(empty)); err != nil || got == nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", empty, got, err)
		}
	}
}

// TestColumnsAreKept holds: columns stay what they are when what they were read from is written over.
func TestColumnsAreKept(t *testing.T) {
	v := jsontext.Value(`[{"name":"Name","format":"name"}]`)
	got, err := Columns(v)
	clear(v)
	if err != nil || len(got) != 1 || got[0].Name != "Name" || got[0].Format != "name" || string(got[0].Text) != `{"name":"Name","format":"name"}` {
		t.Errorf("%q, %v", got, err)
	}
}

// TestKindBounded holds: a list whose kind or apiVersion is longer than any is none.
func TestKindBounded(t *testing.T) {
	for _, field := range []string{"kind", "apiVersion"} {
		for size, want := range map[int]bool{maxKind - 2: true, maxKind - 1: false} {
			doc := `{"metadata":{},"kind":"List","` + field + `":"` + strings.Repeat("k", size-4) + `List","items":[]}`
			s, err := Open("a", strings.NewReader(doc))
			if err == nil {
				err = s.Drain()
			}
			if (err == nil) != want {
				t.Errorf("%s of %d bytes: %v", field, size, err)
			}
		}
	}
}
