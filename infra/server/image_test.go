package server

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// root of the repository, from here.
const root = "../.."

// TestDockerfiles does without an engine what the Dockerfiles say: it copies what is copied, builds as is built, and starts each program with
// nothing around it.
func TestDockerfiles(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	t.Run("bridge", func(t *testing.T) { dockerfile(t, "websocket-bridge/Dockerfile", "/websocket-bridge") })
	t.Run("agent", func(t *testing.T) { dockerfile(t, "websocket-bridge/agent/Dockerfile", "/clusterpass-agent") })
	t.Run("server", func(t *testing.T) {
		dockerfile(t, "infra/server/Dockerfile", "/out/clusterpass-local", "/out/clusterpass")
	})
}

// dockerfile does it for one, which builds these programs.
func dockerfile(t *testing.T, file string, programs ...string) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	src, out := t.TempDir(), t.TempDir()
	var copied []string
	stages, built, base, user := 0, false, "", ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		args := strings.Fields(rest)
		switch {
		case word == "FROM":
			stages++
			base, user = rest, ""
		case word == "USER":
			user = rest
		case word == "COPY" && stages == 1:
			for _, from := range args[:len(args)-1] {
				copyTo(t, filepath.Join(root, from), filepath.Join(src, args[len(args)-1]))
			}
		case word == "RUN" && strings.Contains(rest, "go build"):
			command := regexp.MustCompile(`--mount=\S+`).ReplaceAllString(rest, "")
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(command, " /", ` "$OUT"/`))
			cmd.Dir = src
			cmd.Env = append(os.Environ(), "OUT="+out, "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "GOFLAGS=-mod=readonly", "GOWORK=off")
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, b)
			}
			built = true
		case word == "COPY" && stages == 2 && args[0] != "--from=build":
			t.Errorf("the image gets more than was built: %s", line)
		case word == "COPY" && stages == 2:
			for _, from := range args[1 : len(args)-1] {
				if strings.HasPrefix(from, "/") && !strings.HasPrefix(from, "/etc/ssl/") { // else an option, or of the image that builds
					copied = append(copied, from)
				}
			}
		}
	}
	if stages != 2 || !built {
		t.Fatalf("%d stages, built %v", stages, built)
	}
	if base != "scratch" || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) { // by number: there is no /etc/passwd
		t.Errorf("the image is made from %q and runs as %q", base, user)
	}
	for _, path := range copied {
		if _, err := os.Stat(filepath.Join(out, path)); err != nil {
			t.Errorf("the image wants what was not built: %v", err)
		}
	}
	for _, name := range programs {
		if !slices.Contains(copied, name) {
			t.Errorf("%s is not in the image, but %s", name, copied)
		}
		program(t, filepath.Join(out, name))
	}
}

// program holds one to what it finds in an image that has nothing else.
func program(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s is linked with libraries that the image has not got", path)
	}
	cmd := exec.CommandContext(t.Context(), path, "--help")
	cmd.Env, cmd.Dir = []string{}, t.TempDir()
	if b, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(b), "CLUSTERPASS_") {
		t.Errorf("%s --help: %v\n%s", path, err, b)
	}
}

// copyTo copies as COPY does: a directory's content, or a file into a directory.
func copyTo(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else if err == nil {
		var b []byte
		if b, err = os.ReadFile(from); err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(from)), b, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
