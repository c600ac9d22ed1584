package merge

import (
	"bytes"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Object is the text of an object or a row, with the position of its metadata.
type Object struct {
	Text  []byte
	Found scan.Found
}

// ObjectOf parses the text of an object and repairs invalid UTF-8. It returns an error if text is no JSON.
func ObjectOf(text []byte) (Object, error) {
	s := scan.Scanner{Field: "metadata"}
	text = scan.Repair(text)
	if !s.Whole(text) {
		return Object{}, scan.ErrSyntax
	}
	return Object{text, s.Found}, nil
}

// Clone returns a copy that shares no memory with o.
func (o Object) Clone() Object { return Object{bytes.Clone(o.Text), o.Found} }

// Metadata returns the text of the object's metadata, or nil.
func (o Object) Metadata() []byte {
	if o.Found.Times == 0 {
		return nil
	}
	return o.Text[o.Found.At:o.Found.End]
}

// With returns a copy of the object with the fields of head before its own. head is an object with at least one field.
func (o Object) With(head []byte) Object {
	own := scan.Space(o.Text, 0) + 1
	text := slices.Concat(head[:len(head)-1], []byte(","), o.Text[own:])
	if scan.Space(o.Text, own) == len(o.Text)-1 {
		text = slices.Concat(head[:len(head)-1], o.Text[own:])
	}
	grown := len(text) - len(o.Text)
	return Object{text, scan.Found{Times: o.Found.Times, At: o.Found.At + grown, End: o.Found.End + grown}}
}
