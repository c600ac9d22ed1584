package merge

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// KindOf reads kind and apiVersion, and reports whether the object has such a field. Duplicate, malformed or oversized
// fields yield no kind, because decoders differ in which one counts.
func KindOf(o Object) (kind metav1.TypeMeta, ok bool) {
	var s scan.Scanner
	for f := range s.Fields(o.Text, 0) {
		var target *string
		switch {
		case f.Is("kind"):
			target = &kind.Kind
		case f.Is("apiVersion"):
			target = &kind.APIVersion
		default:
			continue
		}
		name, err := Kind(o.Text[f.At:f.End])
		if *target != "" || err != nil {
			return metav1.TypeMeta{}, true
		}
		*target, ok = name, true
	}
	return kind, ok
}

// AppendHead appends the fields kind and apiVersion of the list to dst, each followed by a comma.
func (s *Source) AppendHead(dst []byte) []byte {
	for _, f := range []struct{ key, value string }{{"kind", s.Kind}, {"apiVersion", s.APIVersion}} {
		value, _ := json.Marshal(f.value) // a string always marshals
		dst = append(append(append(append(dst, '"'), f.key...), `":`...), value...)
		dst = append(dst, ',')
	}
	return dst
}
