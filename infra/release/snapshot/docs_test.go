package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan       = regexp.MustCompile("`([^`]+)`")
	fencedCode     = regexp.MustCompile("(?s)```.*?```")
	windowsSetting = regexp.MustCompile(`%(\w+)%`)
)

// checkInstallPage downloads and unpacks the release by the commands of docs/guide/install.md, from a server here.
func (r release) checkInstallPage(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/guide/install.md")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	t.Cleanup(srv.Close)
	ran := 0
	for _, span := range codeSpan.FindAllStringSubmatch(fencedCode.ReplaceAllString(string(page), ""), -1) {
		line := windowsSetting.ReplaceAllString(strings.ReplaceAll(span[1], `\|`, "|"), "$${${1}}")
		line = strings.ReplaceAll(line, "curl.exe", "curl")
		if !strings.HasPrefix(line, "curl ") || !strings.Contains(line, "RELEASE") ||
			r.single && strings.Contains(line, "windows") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", "set -uo pipefail; "+line)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "VERSION="+r.version, "RELEASE="+srv.URL)
		output, err := cmd.CombinedOutput()
		entries, readErr := os.ReadDir(cmd.Dir)
		if err = errors.Join(err, readErr); err != nil || len(entries) == 0 {
			t.Errorf("install.md: %s: %v, %d files\n%s", line, err, len(entries), output)
		}
		ran++
	}
	want := 7
	if r.single {
		want = 6
	}
	if ran != want {
		t.Errorf("%d commands of install.md download files, want %d", ran, want)
	}
}

// checkReproduction builds the agent by the commands of docs/development/releases.md, in another directory and with an
// empty cache.
func (r release) checkReproduction(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/development/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Reproduce a release")
	_, commands, _ := strings.Cut(section, "```sh\n")
	commands, _, _ = strings.Cut(commands, "```")
	gitDir, err := filepath.Abs(strings.TrimSpace(command(t, "git", "-C", root, "rev-parse", "--absolute-git-dir")))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := copySources(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", "set -uo pipefail\n"+commands)
	cmd.Dir, cmd.Env = elsewhere, append(os.Environ(), "VERSION="+r.version, "GIT_DIR="+gitDir, "GOCACHE="+t.TempDir())
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, output)
	}
	want := fmt.Sprintf("%x  clusterpass-agent\n", sha256.Sum256(r.program(t, "clusterpass-agent", "linux_amd64")))
	if string(output) != want {
		t.Errorf("%sprints %s, want %s", commands, output, want)
	}
}

// copySources returns a directory with the sources of the agent.
func copySources(t *testing.T) string {
	t.Helper()
	elsewhere := filepath.Join(t.TempDir(), "another directory")
	files := command(t, "git", "-C", root, "ls-files", "-z", "--", "go.mod", "go.sum", "shared", "websocket-bridge")
	for name := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, but not committed
		}
		to := filepath.Join(elsewhere, name)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return elsewhere
}
