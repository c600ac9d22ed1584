package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEveryReleaseHasANote: an operator must find what to do for an upgrade to each version of the changelog.
func TestEveryReleaseHasANote(t *testing.T) {
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/guide/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	_, notes, _ := strings.Cut(string(page), "\n## Notes\n")
	versions := regexp.MustCompile(`(?m)^## \[([^]]+)\]`).FindAllStringSubmatch(string(changelog), -1)
	if len(versions) == 0 {
		t.Error("CHANGELOG.md has no version")
	}
	for _, version := range versions {
		if !regexp.MustCompile(`(?m)^### ` + regexp.QuoteMeta(version[1]) + `\b`).MatchString(notes) {
			t.Errorf("docs/guide/upgrade.md has no note for %s", version[1])
		}
	}
}
