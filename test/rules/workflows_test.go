package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	args := []string{"-C", "../..", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--"}
	args = append(args, patterns...)
	out, err := exec.CommandContext(t.Context(), "git", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// TestEveryModuleGetsUpdates: a dependency outside of dependabot's list keeps its vulnerabilities.
func TestEveryModuleGetsUpdates(t *testing.T) {
	data, err := os.ReadFile("../../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	for _, u := range config.Updates {
		listed[u.Ecosystem] = u.Directories
	}
	for ecosystem, name := range map[string]string{"gomod": "go.mod", "npm": "package.json", "pip": "requirements.txt"} {
		var want []string
		for _, file := range tracked(t, name, "*/"+name) {
			if file != "" && !strings.Contains(file, "/testdata/") {
				want = append(want, path.Clean("/"+path.Dir(file)))
			}
		}
		got := slices.Sorted(slices.Values(listed[ecosystem]))
		if slices.Sort(want); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: .github/dependabot.yml lists %q, want %q", ecosystem, got, want)
		}
	}
}

// TestOwnedPathsExist: a folder that is renamed loses its reviewers unnoticed.
func TestOwnedPathsExist(t *testing.T) {
	data, err := os.ReadFile("../../.github/CODEOWNERS")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		owned, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(owned, "/") {
			continue
		}
		if _, err := os.Stat(filepath.Join("../..", owned)); err != nil {
			t.Errorf(".github/CODEOWNERS names %s, which does not exist", owned)
		}
	}
}

// TestFormsHaveUniqueIDs: GitHub does not show a form in which two elements have one id.
func TestFormsHaveUniqueIDs(t *testing.T) {
	files, err := filepath.Glob("../../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var form struct{ Body []struct{ ID string } }
		if err := yaml.Unmarshal(data, &form); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		seen := map[string]bool{}
		for _, element := range form.Body {
			if element.ID != "" && seen[element.ID] {
				t.Errorf("%s has two elements with the id %s", file, element.ID)
			}
			seen[element.ID] = true
		}
	}
}

// TestActionsArePinned: the owner of an action can move a tag to other code, which would get the release's credentials.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	pinned := regexp.MustCompile(`^(\./|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			_, action, ok := strings.Cut(string(line), "uses: ")
			if ok && !pinned.MatchString(strings.TrimSpace(action)) {
				t.Errorf("%s uses %s: name the hash of a commit, and its version in a comment", file, action)
			}
		}
	}
}
