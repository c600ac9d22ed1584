package merge

import (
	"bytes"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Object is an object, or a row, and where among its fields its metadata is.
type Object struct {
	Text  []byte
	Found scan.Found
}

// ObjectOf returns the object that text is, in UTF-8. An error is for text that is no JSON.
func ObjectOf(text []byte) (Object, error) {
	s := scan.Scanner{Field: "metadata"}
	text = scan.Repair(text)
	if !s.Whole(text) {
		return Object{}, scan.ErrSyntax
	}
	return Object{text, s.Found}, nil
}

// Clone returns a copy.
func (o Object) Clone() Object { return Object{bytes.Clone(o.Text), o.Found} }

// Metadata is the object's metadata, nil without any.
func (o Object) Metadata() []byte {
	if o.Found.Times == 0 {
		return nil
	}
	return o.Text[o.Found.At:o.Found.End]
}

// With returns a copy of an object with the fields of head, an object that has some, before its own.
func (o Object) With(head []byte) Object {
	own := scan.Space(o.Text, 0) + 1
	text := slices.Concat(head[:len(head)-1], []byte(","), o.Text[own:])
	if scan.Space(o.Text, own) == len(o.Text)-1 {
		text = slices.Concat(head[:len(head)-1], o.Text[own:])
	}
	grown := len(text) - len(o.Text)
	return Object{text, scan.Found{Times: o.Found.Times, At: o.Found.At + grown, End: o.Found.End + grown}}
}
