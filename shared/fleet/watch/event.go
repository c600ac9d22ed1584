package watch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// A follower adds the last three types to those of Kubernetes.
const (
	added       = "ADDED"
	modified    = "MODIFIED"
	deleted     = "DELETED"
	bookmark    = "BOOKMARK"
	synced      = "synced"      // the initial list was sent
	unavailable = "unavailable" // the initial list cannot be read now
	failed      = "failed"      // the watch must end with err
)

// eventOf parses a member's event, whose object is at the given offsets. The object is a copy.
func eventOf(text []byte, at scan.Found) (typ string, object merge.Object, err error) {
	if at.Times != 1 {
		return "", object, fmt.Errorf("it has %d objects", at.Times)
	}
	object, err = merge.ObjectOf(bytes.Clone(text[at.At:at.End]))
	return scan.Text(scan.Lookup(text, "type")), object, err
}

// rowOf returns the row of a Table, and its columns; nil if the Table lacks columns.
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

// withKind returns a copy of a list's object with its kind, which kube-apiserver omits in lists, and the kind.
func withKind(o merge.Object, listed metav1.TypeMeta) (merge.Object, metav1.TypeMeta) {
	switch own, hasKind := merge.KindOf(o); {
	case hasKind:
		return o.Clone(), own
	case listed.Kind == "":
		return o.Clone(), listed
	}
	head, err := json.Marshal(listed)
	if err != nil {
		panic(err) // strings always marshal
	}
	return o.With(head), listed
}

func metadataOf(o merge.Object, isRow bool) []byte {
	text := o.Metadata()
	if isRow {
		text = scan.Lookup(o.Text, "object", "metadata")
	}
	return text
}

// metadataText does not decode the rest of the metadata, which may be deeper than decoders accept.
func metadataText(o merge.Object, isRow bool, name string) string {
	return scan.Text(scan.Lookup(metadataOf(o, isRow), name))
}
