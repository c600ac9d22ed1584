package merge

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKindOfBounded fails if an object with an oversized kind could fill logs and error messages.
func TestKindOfBounded(t *testing.T) {
	for _, field := range []string{"kind", "apiVersion"} {
		o, err := ObjectOf([]byte(`{"kind":"Pod","` + field + `":"` + strings.Repeat("k", 1000) + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if kind, hasKind := KindOf(o); !hasKind || kind != (metav1.TypeMeta{}) {
			t.Errorf("%s: %.60v", field, kind)
		}
	}
}
