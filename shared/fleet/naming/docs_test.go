package naming

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of references in docs/reference/fleet-names.md anew")

const (
	page       = "../../../docs/reference/fleet-names.md"
	tableBegin = "<!-- references: go test ./shared/fleet/naming -run TestReferencesPage -update -->\n"
	tableEnd   = "<!-- end of references -->\n"
)

func tables() string {
	var b strings.Builder
	b.WriteString("\n| group | kind | field | names | scope |\n|---|---|---|---|---|\n")
	printed := map[string]bool{} // bindings and pods/binding have the same kind
	for _, rows := range [][]Reference{metadataReferences(), kindReferences(), podReferences()} {
		for _, r := range rows {
			row := fmt.Sprintf("| %s | %s | `%s` | %s | %s |\n", groupName(r.Group), r.Kind, r.Path, r.To, r.Scope)
			if r.Scope != scopeVersion && !printed[row] {
				b.WriteString(row)
				printed[row] = true
			}
		}
	}
	b.WriteString("\nThe fields of a Pod, and `metadata.labels{}`, also count in templates of Pods:\n")
	b.WriteString("\n| group | kind | template |\n|---|---|---|\n")
	for _, t := range podTemplates {
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", groupName(t.Group), t.Kind, t.Path)
	}
	return b.String() + "\n"
}

func groupName(group string) string { return strings.ReplaceAll(cmp.Or(group, "core"), "*", "any") }

// TestReferencesPage would fail if the documentation had other fields than those in which a name@cluster works.
func TestReferencesPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	got, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no table of references", page)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+tableBegin+tables()+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if got != tables() {
		t.Errorf("the tables of references in %s differ from the code; run this test with -update", page)
	}
}
