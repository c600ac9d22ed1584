package merge

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// KindOf reads kind and apiVersion of an object, and reports whether it has such fields. Duplicate, malformed or
// oversized fields yield no kind, since decoders differ in which one counts.
func KindOf(o Object) (kind metav1.TypeMeta, ok bool) {
	var s scan.Scanner
	for f := range s.Fields(o.Text, 0) {
		var into *string
		switch {
		case f.Is("kind"):
			into = &kind.Kind
		case f.Is("apiVersion"):
			into = &kind.APIVersion
		default:
			continue
		}
		name, err := Kind(o.Text[f.At:f.End])
		if *into != "" || err != nil {
			return metav1.TypeMeta{}, true
		}
		*into, ok = name, true
	}
	return kind, ok
}
