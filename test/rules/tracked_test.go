package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrackedFilesAreSmallText: a compiled program that is committed by mistake stays in the history of every clone.
// Pictures of the documentation and the compiler's profile are no text, and smaller.
func TestTrackedFilesAreSmallText(t *testing.T) {
	for name, data := range trackedFiles(t) {
		most, isText := 1<<20, true
		switch {
		case isPicture(name):
			most, isText = 150<<10, false
		case name == "infra/release/gateway.pgo":
			most, isText = 250<<10, false
		}
		if len(data) > most {
			t.Errorf("%s has %d bytes, want %d at most; remove it from the commit", name, len(data), most)
		}
		if isText && bytes.IndexByte(data, 0) >= 0 {
			t.Errorf("%s is no text; remove it from the commit", name)
		}
	}
}

// trackedFiles returns the contents of all files in the repository by their paths.
func trackedFiles(t *testing.T) map[string][]byte {
	t.Helper()
	const root = "../.."
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and the deletion is not committed yet
		} else if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	if len(files) < 500 {
		t.Fatalf("git lists only %d files", len(files))
	}
	return files
}
