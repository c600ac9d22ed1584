package members

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

func many(one string, bytes int) string {
	return strings.TrimSuffix(strings.Repeat(one+",", bytes/(len(one)+1)), ",")
}

// TestKindsBounded fails if a member could fill the memory by the kinds of an API version.
func TestKindsBounded(t *testing.T) {
	of := func(resources string) []byte {
		return []byte(`{"kind":"APIResourceList","resources":[` + resources + `]}`)
	}
	for _, one := range []string{"0", "{}", `{"name":"a"}`} {
		doc := of(many(one, 1<<20-100))
		if n := alloctest.Allocated(func() { _, _ = kindsOf(doc) }); n > 24<<20 {
			t.Errorf("%s: %d MiB", one, n>>20)
		}
	}
	const each = len("0123") + len("Thing") + kindOverhead
	for n, want := range map[int]bool{kindsSize / each: true, kindsSize/each + 1: false} {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"%04d","kind":"Thing","namespaced":true},{"name":"%04d/status",`+
				`"kind":"Thing"}`, i, i))
		}
		kinds, err := kindsOf(of(strings.Join(all, ",")))
		if (err == nil) != want || want && (len(kinds) != n || kinds["0007"] != (ResourceKind{"Thing", true})) {
			t.Errorf("%d kinds: %d, %v", n, len(kinds), err)
		}
	}
}
