package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWatchInvariantsNameTests: a reader must find the test of each invariant in shared/fleet/watch.
func TestWatchInvariantsNameTests(t *testing.T) {
	const root = "../.."
	doc, err := os.ReadFile(filepath.Join(root, "shared/fleet/watch/doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testFunctions(t, filepath.Join(root, "shared/fleet"), filepath.Join(root, "test/fleetcheck"))
	items := regexp.MustCompile(`(?m)^// {1,3}\d+\. `).Split(string(doc), -1)[1:]
	if len(items) < 10 {
		t.Fatalf("found only %d invariants", len(items))
	}
	for i, item := range items {
		names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(item, -1)
		if len(names) == 0 {
			t.Errorf("invariant %d names no test", i+1)
		}
		for _, name := range names {
			if !tests[name] {
				t.Errorf("invariant %d names %s, which does not exist", i+1, name)
			}
		}
	}
}

func testFunctions(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range declaration.FindAllStringSubmatch(string(text), -1) {
				names[match[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
