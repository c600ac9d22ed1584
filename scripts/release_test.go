package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyTheNewestReleaseIsLatest fails if a patch of an earlier minor version replaces a newer release for everyone
// who installs without a version.
func TestOnlyTheNewestReleaseIsLatest(t *testing.T) {
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	t.Setenv("GIT_DIR", filepath.Join(t.TempDir(), "git"))
	for _, role := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+role+"_NAME", "ann")
		t.Setenv("GIT_"+role+"_EMAIL", "ann@example.com")
	}
	git("init", "--quiet", "--bare")
	// The hash of the empty tree.
	commit, err := exec.CommandContext(t.Context(), "git", "commit-tree", "-m", "x",
		"4b825dc642cb6eb9a060e54bf8d69288fbee4904").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"v0.1.9", "v0.2.0-rc.1", "v0.2.0", "v0.10.0", "v0.11.0-rc.1", "v9", "vendor"} {
		git("tag", tag, strings.TrimSpace(string(commit)))
	}
	for tag, want := range map[string]string{
		"v0.10.0": "true", "v0.10.1": "true", "v0.11.0": "true", "v1.0.0": "true", // a new tag or one that exists
		"v0.1.10": "false", "v0.2.0": "false", "v0.11.0-rc.1": "false", "v1.0.0-rc.1": "false",
		"v0.0.1-snapshot-0123abc": "false", "v10": "false", "": "false",
	} {
		out, err := script(t, "./newest", tag).CombinedOutput()
		if err != nil || string(out) != want+"\n" {
			t.Errorf("%q: %s%v, want %s", tag, out, err, want)
		}
	}
}

// TestReleaseIsDescribed fails if a release can be published without its notes, or with charts that install another
// version.
func TestReleaseIsDescribed(t *testing.T) {
	script, err := os.ReadFile("releasable")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{
		"CHANGELOG.md":                               "# Changelog\n\n## [1.2.3] - 2026-11-28\n",
		"docs/guide/upgrade.md":                      "## Notes\n\n### 1.2.3\n\nNothing must be done.\n",
		"infra/kubernetes/clusterpass/Chart.yaml":    "version: 1.2.3\nappVersion: 1.2.3\n",
		"infra/kubernetes/clusterpass-b/Chart.yaml":  "version: 1.2.3\nappVersion: 1.2.3\n",
		"infra/kubernetes/clusterpass-b/values.yaml": "",
	}
	for _, tt := range []struct{ name, tag, file, content, want string }{
		{name: "release", tag: "v1.2.3"},
		{name: "release candidate", tag: "v1.2.3-rc.1"},
		{name: "no tag", want: "want vX.Y.Z"},
		{name: "a command", tag: "v1.2.3-rc.1;id", want: "want vX.Y.Z"},
		{name: "another candidate", tag: "v1.2.3-beta", want: "want vX.Y.Z"},
		{"unreleased", "v1.2.3", "CHANGELOG.md", "## [Unreleased]\n", "CHANGELOG.md: "},
		{"without a date", "v1.2.3", "CHANGELOG.md", "## [1.2.3]\n", "CHANGELOG.md: "},
		{"similar", "v1.2.3", "CHANGELOG.md", "## [1x2.3] - 2026-11-28\n", "CHANGELOG.md: "},
		{"without a note", "v1.2.3", "docs/guide/upgrade.md", "### 1.2.30\n", "docs/guide/upgrade.md: "},
		{"an old chart", "v1.2.3", "infra/kubernetes/clusterpass-b/Chart.yaml", "version: 1.2.2\nappVersion: 1.2.3\n",
			`clusterpass-b/Chart.yaml: the release 1.2.3 lacks a line like "version: 1.2.3"`},
		{"an old image", "v1.2.3", "infra/kubernetes/clusterpass-b/Chart.yaml", "version: 1.2.3\nappVersion: 1.2.2\n",
			`"appVersion: 1.2.3"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, content string, mode os.FileMode) {
				t.Helper()
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), mode); err != nil {
					t.Fatal(err)
				}
			}
			for name, content := range described {
				write(name, content, 0o600)
			}
			if tt.file != "" {
				write(tt.file, tt.content, 0o600)
			}
			write("scripts/releasable", string(script), 0o700)
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/releasable"), tt.tag).CombinedOutput()
			if (err == nil) != (tt.want == "") || !strings.Contains(string(out), tt.want) {
				t.Errorf("%s%v, want %q", out, err, tt.want)
			}
		})
	}
}

// TestFunctionsHaveTheVersion fails if functions of AWS do not report the version of their release. sam build copies
// the checkout without its repository.
func TestFunctionsHaveTheVersion(t *testing.T) {
	track(t, "../Makefile")
	cmd := exec.CommandContext(t.Context(), "make", "--dry-run", "build-ProxyFunction", "BUILD_VERSION=v1.2.3",
		"BUILD_REVISION=0123abc", "BUILD_DATE=2026-11-28T00:00:00Z", "ARTIFACTS_DIR=x")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	release, err := os.ReadFile("../infra/release/goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"tag": "v1.2.3", "revision": "0123abc", "date": "2026-11-28T00:00:00Z"} {
		flag := "-X github.com/clusterpass/clusterpass/shared/version." + name + "="
		if !strings.Contains(string(out), flag+value) || !strings.Contains(string(release), flag) {
			t.Errorf("the flags of functions or programs lack %s%s:\n%s", flag, value, out)
		}
	}
}
