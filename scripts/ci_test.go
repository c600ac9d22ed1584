package scripts

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

type programs map[string]string

func (p programs) path(t *testing.T, others bool) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range p {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if others {
		return dir + string(os.PathListSeparator) + os.Getenv("PATH")
	}
	for _, name := range []string{"bash", "dirname", "expr", "getconf", "make", "sh"} {
		file, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(file, filepath.Join(dir, name))
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	return dir
}

// track makes go test repeat a test after a change of files that only the test's child processes read.
func track(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
	}
}

// script returns the command of a script, and tracks the script.
func script(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	track(t, path)
	return exec.CommandContext(t.Context(), path, args...)
}

// A machine without Node or Chromium must still run one slow suite for each commit. CI's output must name the others.
func TestCISuiteIsOneThatTheMachineCanRun(t *testing.T) {
	track(t, "../Makefile")
	const (
		works      = "exit 0"
		fails      = "exit 9"
		noNode     = "make test-clients: no suitable Node with npm; install Node 20.10 or later, with npm"
		noNPM      = "make test-browser: no suitable Node with npm; install Node 20 or later, with npm"
		noDpkg     = "make test-release: no dpkg-deb; install dpkg"
		noChromium = "make test-browser: no Chromium; install it, or set CHROMIUM to its path"
	)
	all := programs{"node": works, "npm": works, "chromium": works}
	debian := programs{"node": works, "npm": works, "dpkg-deb": works}
	chrome := programs{"node": works, "npm": works, "google-chrome": works}
	noBrowser := programs{"node": works, "npm": works}
	oldNode := programs{"node": fails, "npm": works, "chromium": works}
	for name, tt := range map[string]struct {
		has    programs
		hash   string
		want   string
		absent []string // reasons
	}{
		"first":                {all, "000000", "test-clients", nil},
		"second":               {all, "000001aaaa", "test-browser", nil},
		"third":                {all, "000002ffff", "test-conformance", nil},
		"fourth":               {all, "000003", "soak", nil},
		"fifth":                {all, "000004", "fuzz", nil},
		"sixth":                {debian, "000005", "test-release", nil},
		"seventh":              {all, "000006", "test-kubernetes", nil},
		"last":                 {all, "000007", "test-scale", nil},
		"first again":          {debian, "000008", "test-clients", nil},
		"no dpkg":              {all, "000005", "test-kubernetes", []string{noDpkg}},
		"no Chromium":          {noBrowser, "000001", "test-conformance", []string{noChromium}},
		"other Chrome":         {chrome, "000001", "test-browser", nil},
		"no npm":               {programs{"node": works}, "000001", "test-conformance", []string{noNPM}},
		"no npm for clients":   {programs{"node": works}, "000000", "test-conformance", []string{noNode, noNPM}},
		"no Node":              {nil, "000000", "test-conformance", []string{noNode, noNPM}},
		"old Node":             {oldNode, "000000", "test-conformance", []string{noNode, noNPM}},
		"no Node, none needed": {nil, "000003", "soak", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := script(t, "./ci-suite", tt.hash)
			cmd.Env = []string{"PATH=" + tt.has.path(t, false)}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if lines[0] != tt.want {
				t.Errorf("chose %q, want %q", lines[0], tt.want)
			}
			var absent []string
			for _, line := range lines[1:] {
				if !strings.HasSuffix(line, ": runs for other commits") {
					absent = append(absent, line)
				}
			}
			if !slices.Equal(absent, tt.absent) || len(lines) != 8 {
				t.Errorf("the suites that do not run: %q, want 7 with the reasons %q", lines[1:], tt.absent)
			}
		})
	}
}

func ci(t *testing.T, p programs) *exec.Cmd {
	t.Helper()
	cmd := script(t, "../.ci/run")
	track(t, "ci-suite")
	cmd.Env = append(os.Environ(), "PATH="+p.path(t, true))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = patience
	return cmd
}

// otherSuite is a line in CI's output for a commit whose hash begins with 000003.
const otherSuite = "==> CI: not run: make fuzz: runs for other commits\n"

// CI would not find the faults that only an omitted step finds.
func TestCIRunsEveryStep(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	cmd := ci(t, programs{"make": `echo "$@" >> ` + calls, "git": "echo 000003"})
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), otherSuite) {
		t.Errorf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(calls)
	const want = "lint vet rules\ntest\n--silent needs-soak\nsoak SOAK=10m FUZZTIME=10s\n"
	if err != nil || string(got) != want {
		t.Errorf("calls of make %q, %v; want %q", got, err, want)
	}
}

// CI must not hide a failure, nor run a suite after one. If a suite fails, its output must still name the others.
func TestCIFailsWithMake(t *testing.T) {
	for target, wantSuites := range map[string]bool{"test": false, "soak": true} {
		t.Run(target, func(t *testing.T) {
			cmd := ci(t, programs{"make": `[ "$1" != ` + target + ` ] || exit 3`, "git": "echo 000003"})
			out, err := cmd.CombinedOutput()
			wantExitCode(t, err, 3)
			if strings.Contains(string(out), "slow suite") != wantSuites ||
				strings.Contains(string(out), otherSuite) != wantSuites {
				t.Errorf("want suites: %t\n%s", wantSuites, out)
			}
		})
	}
}

// A CI that cancels a job must not leave compilers and test clusters behind.
func TestCIEndsWithAllThatItStarted(t *testing.T) {
	for name, tt := range map[string]struct {
		signal syscall.Signal
		make   string
	}{
		"TERM":                   {syscall.SIGTERM, "sleep 1000 & echo ready >&2; wait"},
		"INT":                    {syscall.SIGINT, "sleep 1000 & echo ready >&2; wait"},
		"TERM in the slow suite": {syscall.SIGTERM, `[ "$1" = soak ] || exit 0; sleep 1000 & echo ready >&2; wait`},
		"make ignores INT":       {syscall.SIGINT, `trap "" INT; sleep 1000 & echo ready >&2; wait`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := ci(t, programs{"make": tt.make, "git": "echo 000003"})
			_, stderr := begin(t, cmd)
			stderr.skipTo(t, "ready")
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			for _, ok := stderr.line(t); ok; _, ok = stderr.line(t) { // until no process can write any more
			}
			wantExitCode(t, cmd.Wait(), 128+int(tt.signal))
		})
	}
}
