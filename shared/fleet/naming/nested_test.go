package naming

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// nestedApplied returns an object whose last-applied annotation is nested depth times.
func nestedApplied(depth int) string {
	text := `{"metadata":{"name":"x@f"}}`
	for range depth {
		quoted := strings.NewReplacer(`"`, `\u0022`, `\`, `\u005c`).Replace(text)
		text = `{"metadata":{"annotations":{"` + merge.LastApplied + `":"` + quoted + `"}}}`
	}
	return text
}

// TestNestedLastAppliedIsBounded would fail if some kilobytes could crash the gateway: 30 levels would need 16 GB.
func TestNestedLastAppliedIsBounded(t *testing.T) {
	const limit = 4 << 20
	text := []byte(nestedApplied(30))
	t.Run("request", func(t *testing.T) {
		bytes := alloctest.Allocated(func() {
			body, err := Parse(anyKind, "application/json", text)
			if err == nil {
				_, err = body.ForMember("f", 1)
			}
			if err != nil {
				t.Error(err)
			}
		})
		if bytes > limit {
			t.Errorf("a request of %d bytes allocates %d", len(text), bytes)
		}
	})
	t.Run("answer", func(t *testing.T) {
		object, err := merge.ObjectOf(text)
		if err != nil {
			t.Fatal(err)
		}
		bytes := alloctest.Allocated(func() {
			if _, err := NewAnswer(anyKind, "m1", true, slots(nil)).Append(nil, object); err != nil {
				t.Error(err)
			}
		})
		if bytes > limit {
			t.Errorf("an object of %d bytes allocates %d", len(text), bytes)
		}
	})
}
