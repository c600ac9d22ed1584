package build

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func tiny(t *testing.T) *source {
	t.Helper()
	dir, err := filepath.Abs("testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	return &source{dir: dir, cache: t.TempDir(), sums: []byte("pins"), flags: []string{"-trimpath"}}
}

var tinyTargets = []target{{"first", "example.test/tiny/one"}, {"second", "example.test/tiny/two"}}

func TestTestProgramIsBuilt(t *testing.T) {
	s := tiny(t)
	dir, err := s.ensure(t.Context(), []target{{"third.test", "example.test/tiny/tests"}}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "third.test")).CombinedOutput()
	if err != nil || string(out) != "three" {
		t.Errorf("third.test printed %q (%v), want three", out, err)
	}
}

// TestE2EIsBuiltOnlyWhenAskedFor: Kubernetes' end-to-end tests would delay every run of the tests.
func TestE2EIsBuiltOnlyWhenAskedFor(t *testing.T) {
	for _, target := range targets {
		if target.name == E2E {
			t.Errorf("Ensure builds %s", E2E)
		}
	}
	dir := t.TempDir()
	t.Setenv("PATH", t.TempDir()) // no go command: nothing may be built
	t.Setenv(EnvBinaries, dir)
	if _, err := EnsureE2E(t.Context(), &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), EnvBinaries+"="+dir+" lacks "+E2E) {
		t.Errorf("got error %v, want one that names the directory and %s", err, E2E)
	}
	want := filepath.Join(dir, E2E)
	if err := os.WriteFile(want, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := EnsureE2E(t.Context(), &bytes.Buffer{}); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestConcurrentRunsShareOneBuild(t *testing.T) {
	s := tiny(t)
	var said [3]bytes.Buffer
	var dirs [3]string
	var runs sync.WaitGroup
	for i := range said {
		runs.Go(func() {
			var err error
			if dirs[i], err = s.ensure(t.Context(), tinyTargets, &said[i]); err != nil {
				t.Error(err)
			}
		})
	}
	runs.Wait()

	all := said[0].String() + said[1].String() + said[2].String()
	for _, want := range []string{"built first (1/2)", "built second (2/2)", "built 2 programs"} {
		if got := strings.Count(all, want); got != 1 {
			t.Errorf("%q was said %d times, want once:\n%s", want, got, all)
		}
	}
	for program, want := range map[string]string{"first": "one", "second": "two"} {
		out, err := exec.Command(filepath.Join(dirs[0], program)).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s names %q (%v), want %q", program, out, err, want)
		}
	}

	var again bytes.Buffer
	if _, err := s.ensure(t.Context(), tinyTargets, &again); err != nil || again.Len() > 0 {
		t.Errorf("a second run said %q (%v), want nothing", again.String(), err)
	}
}

// addDownloaded adds a release to the cache of downloaded programs, which contain their version.
func addDownloaded(t *testing.T, s *source, version string) (dir string) {
	t.Helper()
	dir = filepath.Join(s.cache, "published", version+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Etcd, APIServer, Kubectl} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(version), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Tests compare answers of the pinned release, so they must not use another one, and must not compile for minutes what
// is published.
func TestTestsUsePinnedRelease(t *testing.T) {
	wanted := []target{minimalTargets[0], minimalTargets[1], tinyTargets[0]}
	for name, tt := range map[string]struct {
		downloaded string
		built      bool
		want       string // content of etcd afterwards
	}{
		"pinned":        {"v1.2.3", false, "v1.2.3"},
		"other":         {"v1.2.9", false, ""},
		"none":          {"", false, ""},
		"built already": {"v1.2.3", true, "built"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvIndex, "https://127.0.0.1:1")
			s := tiny(t)
			s.version = "v1.2.3"
			if tt.downloaded != "" {
				addDownloaded(t, s, tt.downloaded)
			}
			if tt.built {
				if err := os.MkdirAll(s.builtDir(), 0o755); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{Etcd, APIServer} {
					if err := os.WriteFile(filepath.Join(s.builtDir(), name), []byte(tt.want), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 2 {
				if err := s.addPublished(t.Context(), wanted, io.Discard); err != nil {
					t.Fatal(err)
				}
			}
			got, _ := os.ReadFile(filepath.Join(s.builtDir(), Etcd))
			if string(got) != tt.want {
				t.Errorf("etcd is %q, want %q", got, tt.want)
			}
			var left []string
			for _, one := range missing(s.builtDir(), wanted) {
				left = append(left, one.name)
			}
			if isComplete := len(left) == 1 && left[0] == tinyTargets[0].name; isComplete != (tt.want != "") {
				t.Errorf("%q are left to build", left)
			}
		})
	}
}

// The demo must not compile for minutes what is there, and must start without a network.
func TestMinimalProgramsAreBuiltLast(t *testing.T) {
	for name, tt := range map[string]struct {
		index           string
		cached, built   bool
		wantPublished   bool
		want, wantNever string // in the progress
	}{
		"built":               {index: "https://127.0.0.1:1", cached: true, built: true, wantNever: "i"},
		"downloaded":          {index: "https://127.0.0.1:1", cached: true, wantPublished: true, wantNever: "i"},
		"neither, no network": {index: "https://127.0.0.1:1", want: "published programs of Kubernetes v1.2 cannot be used"},
		"neither, disabled":   {index: NoIndex, want: "built second (2/2)", wantNever: "published"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvIndex, tt.index)
			s := tiny(t)
			s.version = "v1.2.3"
			want := s.builtDir()
			if tt.built {
				if _, err := s.ensure(t.Context(), tinyTargets, io.Discard); err != nil {
					t.Fatal(err)
				}
			}
			if tt.cached {
				if dir := addDownloaded(t, s, "v1.2.9"); tt.wantPublished {
					want = dir
				}
			}
			var said bytes.Buffer
			got, err := s.find(t.Context(), tinyTargets, &said)
			if err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
			if !strings.Contains(said.String(), tt.want) || strings.Contains(said.String(), cmp.Or(tt.wantNever, "\x00")) {
				t.Errorf("the progress is %q; want %q, and not %q", said.String(), tt.want, tt.wantNever)
			}
			if !tt.wantPublished && len(missing(got, tinyTargets)) > 0 {
				t.Errorf("%s lacks programs", got)
			}
		})
	}
}

func TestBrokenBuildLeavesNothingThatRuns(t *testing.T) {
	s := tiny(t)
	_, err := s.ensure(t.Context(), []target{tinyTargets[0], {"second", "example.test/tiny/broken"}}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "build second") || !strings.Contains(err.Error(), "undefined") {
		t.Fatalf("got error %v, want one that names the program and what the compiler said", err)
	}
	entries, err := os.ReadDir(s.builtDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "first" && e.Name() != ".lock" {
			t.Errorf("%s was left behind", e.Name())
		}
	}

	var said bytes.Buffer
	if _, err := s.ensure(t.Context(), tinyTargets, &said); err != nil ||
		!strings.Contains(said.String(), "second (1/1)") {
		t.Errorf("after the failure: %v, said %q", err, said.String())
	}
}

func TestWaitingForAnotherBuildEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, func() { t.Error("waited for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := lock(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	unlock()
	second, err := lock(t.Context(), path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	second()
}

func TestExistingBinaries(t *testing.T) {
	full, empty := t.TempDir(), t.TempDir()
	for _, target := range targets {
		if err := os.WriteFile(filepath.Join(full, target.name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	partial := t.TempDir()
	if err := os.WriteFile(filepath.Join(partial, Etcd), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(partial, Scheduler), nil, 0o644); err != nil {
		t.Fatal(err)
	}

	tests := map[string]struct {
		dir        string
		inPath     bool // PATH has a kubectl
		wantErr    []string
		wantNotErr []string
	}{
		"all there":          {dir: full},
		"all there, kubectl": {dir: full, inPath: true},
		"empty": {
			dir: empty, wantErr: []string{EnvBinaries, Etcd, APIServer, ControllerManager, Scheduler, Kwok, Kwokctl, Kubectl},
		},
		"kubectl from PATH": {dir: empty, inPath: true, wantErr: []string{Etcd}, wantNotErr: []string{Kubectl}},
		"not executable":    {dir: partial, wantErr: []string{Scheduler}, wantNotErr: []string{Etcd}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			wantKubectl := filepath.Join(test.dir, Kubectl)
			if test.inPath {
				wantKubectl = filepath.Join(path, Kubectl)
				if err := os.WriteFile(wantKubectl, nil, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", path) // no go command either: nothing may be built
			t.Setenv(EnvBinaries, test.dir)
			var said bytes.Buffer
			got, err := Ensure(t.Context(), &said)
			if said.Len() > 0 {
				t.Errorf("said %q, want nothing", said.String())
			}
			if len(test.wantErr) == 0 {
				if err != nil || got.Dir != test.dir || got.Kubectl != wantKubectl {
					t.Errorf("got %+v, %v; want %s and %s", got, err, test.dir, wantKubectl)
				}
				return
			}
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			missing := strings.TrimPrefix(err.Error(), EnvBinaries+"="+test.dir) // the directory may contain any text
			for _, want := range test.wantErr {
				if !strings.Contains(EnvBinaries+missing, want) {
					t.Errorf("error %q does not name %s", err, want)
				}
			}
			for _, not := range test.wantNotErr {
				if strings.Contains(missing, not+",") || strings.Contains(missing, not+":") {
					t.Errorf("error %q names %s", err, not)
				}
			}
		})
	}
}

func TestPinsAreFoundAndNamed(t *testing.T) {
	s, err := pins(t.Context()) // from this package's directory
	if err != nil {
		t.Fatal(err)
	}
	version, err := required(string(s.sums), "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(s.flags, " "), "version.gitVersion="+version) {
		t.Errorf("the flags %q do not name Kubernetes %s", s.flags, version)
	}
	changed := *s
	changed.sums = append([]byte("x"), s.sums...)
	if changed.key() == s.key() {
		t.Error("other pins have the same cache")
	}
	changed = *s
	changed.flags = append([]string{"-race"}, s.flags...)
	if changed.key() == s.key() {
		t.Error("other flags have the same cache")
	}
	if _, err := required(string(s.sums), "example.test/none"); err == nil {
		t.Error("a module that is not required has a version")
	}
}

// TestMeterShowsOnlySlowBuilds: the first start builds for minutes and must show progress. Later starts print nothing.
func TestMeterShowsOnlySlowBuilds(t *testing.T) {
	var fast bytes.Buffer
	m := newMeter(&fast, "it")
	m.delay = time.Hour
	if err := m.run(exec.Command("true")); err != nil || fast.Len() > 0 {
		t.Errorf("a fast build said %q (%v), want nothing", fast.String(), err)
	}

	slow := exec.Command("cat")
	stdin, err := slow.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said := endingBuild{end: stdin}
	m = newMeter(&said, "it")
	m.delay = time.Millisecond
	err = m.run(slow)
	if lines := strings.Split(said.String(), "\n"); err != nil || len(lines) < 3 ||
		!strings.HasPrefix(lines[0], "building it: ") || !strings.HasPrefix(lines[len(lines)-2], "built it: ") {
		t.Errorf("a slow build said %q (%v), want that it runs and that it is built", said.String(), err)
	}
}

type endingBuild struct {
	bytes.Buffer
	end io.Closer
}

func (b *endingBuild) Write(p []byte) (int, error) {
	b.end.Close()
	return b.Buffer.Write(p)
}

// TestModuleBuildsItsPrograms: a program must be built once, from the pins of its own module.
func TestModuleBuildsItsPrograms(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	m := Module{Dir: "test/cluster/build/testdata/tiny", Programs: []Program{
		{"first", "example.test/tiny/one"}, {"second", "example.test/tiny/two"}}}
	var printed bytes.Buffer
	dir, err := m.Ensure(t.Context(), &printed)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "second")).CombinedOutput()
	if err != nil || string(out) != "two" {
		t.Errorf("the program printed %q (%v), want two", out, err)
	}
	if again, err := m.Ensure(t.Context(), &printed); err != nil || again != dir {
		t.Errorf("the second call returned %q, %v; want %q", again, err, dir)
	}
	if got := strings.Count(printed.String(), "built second"); got != 1 {
		t.Errorf("the program was built %d times, want once:\n%s", got, &printed)
	}
	if _, err := (Module{Dir: "test/cluster/build/testdata/none"}).Ensure(t.Context(), &printed); err == nil ||
		!strings.Contains(err.Error(), "read the pinned versions") {
		t.Errorf("got error %v, want one that names the pins", err)
	}
}
