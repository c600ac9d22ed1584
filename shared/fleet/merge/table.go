package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Column is one column of a Table.
type Column struct {
	Name, Format string
	Text         jsontext.Value // its whole definition
}

// The limits of columns. A CustomResourceDefinition may have more, so that the rest is omitted without an error.
const (
	maxOwnColumns = 64      // of one cluster's table
	maxColumns    = 256     // after uniting tables
	maxDefinition = 4 << 10 // bytes of a column's definition
	maxColumnText = 512     // bytes of a name, type or format in a longer definition
)

// Columns reads the value of columnDefinitions, which must be well-formed. It returns a copy of the first 64, which is
// not nil. A definition of over 4 KiB loses its description.
func Columns(v jsontext.Value) ([]Column, error) {
	if !bytes.HasPrefix(v, []byte("[")) && string(v) != "null" {
		return nil, errors.New("its columns are not an array")
	}
	out := []Column{}
	var s scan.Scanner
	for at, end := range s.Elements(v, 0) {
		if len(out) == maxOwnColumns {
			break
		}
		if v[at] != '{' {
			return nil, errors.New("one of its columns is not an object")
		}
		text := bytes.Clone(v[at:end])
		if len(text) > maxDefinition {
			text = shortDefinition(text)
		}
		out = append(out, Column{scan.Text(scan.Lookup(text, "name")), scan.Text(scan.Lookup(text, "format")), text})
	}
	return out, nil
}

func shortDefinition(text []byte) []byte {
	field := func(name string) string {
		value := scan.Text(scan.Lookup(text, name))
		return strings.ToValidUTF8(value[:min(len(value), maxColumnText)], "")
	}
	priority, _ := strconv.ParseInt(string(scan.Lookup(text, "priority")), 10, 32) // 0 is its default
	out, err := json.Marshal(metav1.TableColumnDefinition{
		Name: field("name"), Type: field("type"), Format: field("format"), Priority: int32(priority),
	})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return out
}

const clusterColumn = `{"name":"Cluster","type":"string","format":"",` +
	`"description":"The cluster that the object is in.","priority":0}`

// Layout is the columns of several tables, each once, with the cluster's column after the name.
type Layout struct {
	Columns []Column
	name    int // the index of the name's column; -1 without one
	cluster int // the index of the cluster's column
}

// NewLayout unites columns in the order of the first table. Other columns follow their predecessors in their own
// tables, but none becomes the first, which is the name.
func NewLayout(tables ...[]Column) *Layout {
	l := &Layout{}
	for _, table := range tables {
		at := min(1, len(l.Columns))
		for _, c := range table {
			if i := l.index(c.Name); i >= 0 {
				at = i + 1
				continue
			}
			if len(l.Columns) == maxColumns {
				continue // the clusters may all have different columns
			}
			l.Columns = slices.Insert(l.Columns, at, c)
			at++
		}
	}
	l.name = slices.IndexFunc(l.Columns, func(c Column) bool { return c.Format == "name" })
	if l.name < 0 {
		l.name = slices.IndexFunc(l.Columns, func(c Column) bool { return strings.EqualFold(c.Name, "name") })
	}
	l.cluster = min(max(0, l.name)+1, len(l.Columns))
	l.Columns = slices.Insert(l.Columns, l.cluster, Column{Name: "", Text: jsontext.Value(clusterColumn)})
	return l
}

// With returns the layout extended by the columns of another table, or l itself if it gets none.
func (l *Layout) With(table []Column) *Layout {
	own := slices.Delete(slices.Clone(l.Columns), l.cluster, l.cluster+1)
	if more := NewLayout(own, table); len(more.Columns) > len(l.Columns) {
		return more
	}
	return l
}

func (l *Layout) index(name string) int {
	return slices.IndexFunc(l.Columns, func(c Column) bool { return c.Name == name })
}

// Definitions returns the value of columnDefinitions.
func (l *Layout) Definitions() []byte {
	out := []byte{'['}
	for i, c := range l.Columns {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, c.Text...)
	}
	return append(out, ']')
}

// Objects rewrites the objects and the names of rows.
type Objects interface {
	Append(dst []byte, object Object) ([]byte, error) // appends an object to dst
	Name(own string) string                           // returns the text of the name's cell
	ForgetNamespace()                                 // a row may have no object
}

// Rows lays out the rows of one table. It is not safe for concurrent use.
type Rows struct {
	objects Objects
	from    []int  // for each column of the layout the table's column, or one of the constants below
	cluster []byte // the cell with the cluster
	name    int
	scanner scan.Scanner
	cells   [][]byte // the current row's
}

const (
	fromNowhere = -1
	fromCluster = -2
)

// For returns the layout of the rows of a cluster's table with the given columns.
func (l *Layout) For(cluster string, table []Column, objects Objects) *Rows {
	r := &Rows{objects: objects, from: make([]int, len(l.Columns)), name: l.name}
	r.cluster, _ = json.Marshal(cluster) // a string always marshals
	for i, c := range l.Columns {
		if i == l.cluster {
			r.from[i] = fromCluster
			continue
		}
		r.from[i] = slices.IndexFunc(table, func(t Column) bool { return t.Name == c.Name }) // -1 is fromNowhere
	}
	return r
}

func (r *Rows) nameCell(cell []byte) []byte {
	var own string
	if err := json.Unmarshal(cell, &own); err != nil || own == "" {
		return cell
	}
	name := r.objects.Name(own)
	if name == own {
		return cell
	}
	out, _ := json.Marshal(name) // a string always marshals
	return out
}

// Append appends a row of the table to dst, in the layout's order.
func (r *Rows) Append(dst []byte, row Object) ([]byte, error) {
	var object, conditions []byte
	r.objects.ForgetNamespace()
	r.cells = r.cells[:0]
	for f := range r.scanner.Fields(row.Text, 0) {
		switch value := row.Text[f.At:f.End]; {
		case f.Is("cells"):
			r.cells = r.cells[:0]
			for at, end := range r.scanner.Elements(row.Text, f.At) {
				if r.cells = append(r.cells, row.Text[at:end]); len(r.cells) == maxOwnColumns {
					break
				}
			}
		case f.Is("object"):
			object = value
		case f.Is("conditions"):
			conditions = value
		}
	}
	dst = append(dst, `{"cells":[`...)
	for i, from := range r.from {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case from == fromCluster:
			dst = append(dst, r.cluster...)
		case from < 0 || from >= len(r.cells):
			dst = append(dst, "null"...)
		case i == r.name:
			dst = append(dst, r.nameCell(r.cells[from])...)
		default:
			dst = append(dst, r.cells[from]...)
		}
	}
	dst = append(dst, ']')
	if conditions != nil {
		dst = append(append(dst, `,"conditions":`...), conditions...)
	}
	if object != nil && string(object) != "null" {
		dst = append(dst, `,"object":`...)
		o, err := ObjectOf(object)
		if err != nil {
			return dst, err
		}
		if dst, err = r.objects.Append(dst, o); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}
