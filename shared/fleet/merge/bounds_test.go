package merge

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

// TestColumnsBounded fails if a CustomResourceDefinition with many or long columns breaks the lists of its kind.
func TestColumnsBounded(t *testing.T) {
	bomb := jsontext.Value("[" + strings.Repeat("{},", 1<<20) + "{}]")
	var got []Column
	var err error
	if n := alloctest.Allocated(func() { got, err = Columns(bomb) }); err != nil || len(got) != maxOwnColumns ||
		n > 1<<20 {
		t.Errorf("%d columns, %d bytes, %v", len(got), n, err)
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

// TestLongDefinition checks that a definition of over 4 KiB loses its description, and nothing else.
func TestLongDefinition(t *testing.T) {
	definition := func(size int) jsontext.Value {
		const head, tail = `{"name":"a","type":"integer","format":"int64","priority":1,"description":"`, `"}`
		return jsontext.Value("[" + head + strings.Repeat("x", size-len(head)-len(tail)) + tail + "]")
	}
	if got, err := Columns(definition(maxDefinition)); err != nil || len(got) != 1 || got[0].Name != "a" ||
		len(got[0].Text) != maxDefinition {
		t.Errorf("%v, %v", got, err)
	}
	const short = `{"name":"a","type":"integer","format":"int64","description":"","priority":1}`
	if got, err := Columns(definition(maxDefinition + 1)); err != nil || len(got) != 1 || got[0].Name != "a" ||
		string(got[0].Text) != short {
		t.Errorf("a long definition becomes %s, %v", got, err)
	}
	long := jsontext.Value(`[{"name":"` + strings.Repeat("n", 1<<20) + `"}]`)
	if got, err := Columns(long); err != nil || len(got) != 1 || len(got[0].Text) > maxDefinition {
		t.Errorf("a long name has %d bytes, %v", len(got[0].Text), err)
	}
}

// TestColumnsAreCopies would fail if the columns of a table changed when the buffer of its text is reused.
func TestColumnsAreCopies(t *testing.T) {
	v := jsontext.Value(`[{"name":"Name","format":"name"}]`)
	got, err := Columns(v)
	clear(v)
	if err != nil || len(got) != 1 || got[0].Name != "Name" || got[0].Format != "name" ||
		string(got[0].Text) != `{"name":"Name","format":"name"}` {
		t.Errorf("%q, %v", got, err)
	}
}

// TestKindBounded would fail if a cluster could fill a watch's memory with a long kind or apiVersion.
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

// TestCustomListKind fails if a CustomResourceDefinition with an unusual list kind breaks its lists.
func TestCustomListKind(t *testing.T) {
	for _, kind := range []string{"Table", "Foos", "Status"} {
		s, err := Open("a", strings.NewReader(`{"apiVersion":"x.io/v1","items":[{"kind":"Foo"}],"kind":"`+kind+`",`+
			`"metadata":{"resourceVersion":"1"}}`))
		if err == nil {
			err = s.Drain()
		}
		if err != nil || s.IsTable() || s.Read != 1 {
			t.Errorf("%s: %v", kind, err)
		}
	}
	s, err := Open("a", strings.NewReader(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`))
	if err == nil {
		err = s.Drain()
	}
	if err == nil {
		t.Error("a Status is a list")
	}
	if !IsTable("Table", "meta.k8s.io/v1") || IsTable("Table", "x.io/v1") || IsTable("Pod", "meta.k8s.io/v1") {
		t.Error("a Table is recognized wrongly")
	}
}
