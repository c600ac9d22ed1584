package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// eventOf reads the text of a member's event, whose object is at the given offsets. The object is a copy.
func eventOf(text []byte, at scan.Found) (kind string, object merge.Object, err error) {
	if at.Times != 1 {
		return "", object, fmt.Errorf("it has %d objects", at.Times)
	}
	object, err = merge.ObjectOf(bytes.Clone(text[at.At:at.End]))
	return scan.Text(scan.Lookup(text, "type")), object, err
}

// rowOf reads an event's object that is a table: its row, and the columns that are said there, nil where none are.
func rowOf(table merge.Object) (row merge.Object, columns []merge.Column, err error) {
	var s, elements scan.Scanner
	var text []byte
	rows := 0
	for f := range s.Fields(table.Text, 0) {
		switch {
		case f.Is("columnDefinitions"):
			if columns, err = merge.Columns(table.Text[f.At:f.End]); err != nil {
				return row, nil, err
			}
		case f.Is("rows"):
			for at, end := range elements.Elements(table.Text, f.At) {
				if text = table.Text[at:end]; rows == 1 {
					return row, nil, errors.New("its table has several rows")
				}
				rows++
			}
		}
	}
	if rows == 0 {
		return row, nil, errors.New("its table has no row")
	}
	row, err = merge.ObjectOf(text)
	return row, columns, err
}

// withKind returns a copy of a list's object with its kind, which kube-apiserver leaves out there and writes into events, and which it has then.
func withKind(o merge.Object, listed metav1.TypeMeta) (merge.Object, metav1.TypeMeta) {
	switch have, said := merge.KindOf(o); {
	case said:
		return o.Clone(), have
	case listed.Kind == "":
		return o.Clone(), listed
	}
	head, err := json.Marshal(listed)
	if err != nil {
		panic(err) // strings always marshal
	}
	return o.With(head), listed
}

// metadataOf returns the metadata of an object, or of that in a row; nil if there is none.
func metadataOf(o merge.Object, row bool) []byte {
	text := o.Metadata()
	if row {
		text = scan.Lookup(o.Text, "object", "metadata")
	}
	return text
}

// metadataText returns a string of an object's metadata, or of that in a row; "" if there is none. The rest of the
// metadata is not decoded, since it may be deeper than decoders read.
func metadataText(o merge.Object, row bool, name string) string {
	return scan.Text(scan.Lookup(metadataOf(o, row), name))
}
