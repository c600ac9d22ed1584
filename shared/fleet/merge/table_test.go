package merge

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// TestLayout would fail if a row of one cluster had its cells in the columns of another.
func TestLayout(t *testing.T) {
	column := func(name, format string) Column {
		return Column{name, format, jsontext.Value(`{"name":"` + name + `","format":"` + format + `"}`)}
	}
	old := []Column{column("Name", "name"), column("Ready", ""), column("Age", "")}
	newer := []Column{column("Name", "name"), column("Ready", ""), column("Phase", ""), column("Age", ""),
		column("IP", "")}
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
			`{"cells":["x","b","1/1",{"p":1},"5d","::1"],"object":{"metadata":{"annotations":` +
				`{"resource.karmada.io/cached-from-cluster":"b"},"name":"x"}}}`},
		{"b", "@b", []Column{column("Ready", "")}, `{"cells":["1/1"]}`, `{"cells":[null,"b","1/1",null,null,null]}`},
		{"b", "", newer, `{"cells":["y"],"cells":["x",` + strings.Repeat("1,", 100) + `1]}`, `{"cells":["x","b",1,1,1,1]}`},
		{"b", "", newer, `{"cells":7}`, `{"cells":[null,"b",null,null,null,null]}`},
		{"b", "@b", newer, `{"cells":[null,7]}`, `{"cells":[null,"b",7,null,null,null]}`},
		{
			"b", "@b", newer, `{"cells":["x"],"conditions":[{"type":"Completed"}],"object":null}`,
			`{"cells":["x@b","b",null,null,null,null],"conditions":[{"type":"Completed"}]}`,
		},
	} {
		got, err := l.For(tt.cluster, tt.table, objects{NewAnnotator(tt.cluster, nil), tt.suffix}).Append(nil,
			parseObject(t, tt.row))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s\n got %s, %v\nwant %s", tt.row, got, err, tt.want)
		}
	}
	if got := NewLayout([]Column{column("X", ""), column("NAME", "")}); got.Columns[2].Name != "" {
		t.Errorf("without a column of format name: %+v", got.Columns)
	}
	// A table without a name column has no names to replace.
	l = NewLayout([]Column{column("Ready", "")})
	if got, err := l.For("b", l.Columns[:1], objects{NewAnnotator("b", nil), "@b"}).Append(nil,
		parseObject(t, `{"cells":["1/1"]}`)); err != nil || string(got) != `{"cells":["1/1","b"]}` {
		t.Errorf("a table without names: %s, %v", got, err)
	}
	if got := NewLayout(nil); len(got.Columns) != 1 {
		t.Errorf("without columns: %+v", got.Columns)
	}
}

type objects struct {
	*Annotator
	suffix string
}

func (o objects) Name(own string) string { return own + o.suffix }

// TestRowWithoutObject fails if a row without an object had the namespace of the row before it, so that a list of some
// namespaces contained it.
func TestRowWithoutObject(t *testing.T) {
	name := []Column{{Name: "Name", Format: "name", Text: jsontext.Value(`{}`)}}
	for _, row := range []string{`{"cells":["y"],"object":null}`, `{"cells":["y"]}`, `{"cells":["y"],"object":{}}`} {
		a := NewAnnotator("c", nil)
		rows := NewLayout(name).For("c", name, objects{a, ""})
		for _, tt := range []struct{ row, want string }{
			{`{"cells":["x"],"object":{"metadata":{"name":"x","namespace":"shop"}}}`, "shop"}, {row, ""},
		} {
			if _, err := rows.Append(nil, parseObject(t, tt.row)); err != nil || a.Namespace() != tt.want {
				t.Errorf("%s has the namespace %q, want %q, %v", tt.row, a.Namespace(), tt.want, err)
			}
		}
	}
}

// TestLayoutWith would fail if a watch lost a later cluster's columns, or if clusters could add columns without limit.
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
		t.Error("a layout without new columns is a copy")
	}
	if got := text(l.With(columns("Name", "Ready", "Age", "Node"))); got != "Name,,Ready,Age,Node" ||
		text(l) != "Name,,Age" {
		t.Errorf("%s of %s", got, text(l))
	}
	if got := text(NewLayout().With(columns("Name"))); got != "Name," {
		t.Errorf("from nothing: %s", got)
	}
	bare := NewLayout(columns("Ready")) // no name column
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

// TestLayoutOfMany would fail if one cluster's columns displaced those of others, the name or the cluster.
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
		t.Errorf("a table has too many columns: %d, %v", len(got), err)
	}
	name := []Column{{Name: "Name", Format: "name", Text: jsontext.Value(`{}`)}}
	junk := append([]Column{{Text: jsontext.Value(`{}`)}}, columns(maxOwnColumns-1)...)
	for when, l := range map[string]*Layout{"at once": NewLayout(name, junk), "later": NewLayout(name).With(junk)} {
		if l.name != 0 || l.Columns[0].Name != "Name" || l.cluster != 1 || len(l.Columns) != maxOwnColumns+2 {
			t.Errorf("%s: the name at %d, the cluster at %d of %d", when, l.name, l.cluster, len(l.Columns))
		}
		row, err := l.For("c", name, objects{NewAnnotator("c", nil), ""}).Append(nil, parseObject(t, `{"cells":["x"]}`))
		if err != nil || !strings.HasPrefix(string(row), `{"cells":["x","c",null,`) {
			t.Errorf("%s: %s, %v", when, row, err)
		}
	}
	if l := NewLayout(junk, name); l.name < 0 || l.cluster != l.name+1 {
		t.Errorf("the name at %d, the cluster at %d", l.name, l.cluster)
	}
}
