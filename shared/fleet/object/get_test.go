package object

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
)

// TestTableOfOneObjectHasOneRow fails if rows could use a hundred times the bytes that a member sends.
func TestTableOfOneObjectHasOneRow(t *testing.T) {
	var columns []string
	for i := range 64 {
		columns = append(columns, `{"name":"`+strings.Repeat("a", i+1)+`"}`)
	}
	body := `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[` +
		strings.Join(columns, ",") + `],"rows":[{}` + strings.Repeat(",{}", 1<<18) + `]}`
	answer := naming.NewAnswer(naming.ReferencesOf("", "pods", ""), "evil", false, nil)
	allocated := alloctest.Allocated(func() {
		_, err := rewriteTable("evil", []byte(body), answer)
		if err == nil || !strings.Contains(err.Error(), "more than one row") {
			t.Errorf("the table is answered: %v", err)
		}
	})
	if allocated > 10<<20 {
		t.Errorf("a table of %d bytes takes %d", len(body), allocated)
	}
}

// TestStoredPlacementMatchesExactly fails if an object could hide its placement, so that kubectl apply changed another.
func TestStoredPlacementMatchesExactly(t *testing.T) {
	const metadata = `{"metadata":{"annotations":{"clusterpass.io/cluster":"f1"}}`
	for name, object := range map[string]string{
		"plain":        metadata + `}`,
		"another case": metadata + `,"METADATA":{"annotations":{"clusterpass.io/cluster":"f2"}}}`,
		"deep":         metadata + `,"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	} {
		if got := storedPlacement([]byte(object)); got != "f1" {
			t.Errorf("%s: placed in %q", name, got)
		}
	}
}
