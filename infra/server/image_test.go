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

const root = "../.."

// Every image must build, and its programs must start. The test follows the Dockerfiles without a container engine.
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

func dockerfile(t *testing.T, file string, programs ...string) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	b := &build{t: t, src: t.TempDir(), out: t.TempDir()}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case instruction == "FROM":
			b.stages++
			b.base, b.user = rest, ""
		case instruction == "USER":
			b.user = rest
		case instruction == "COPY":
			b.copyInstruction(strings.Fields(rest))
		case instruction == "RUN" && strings.Contains(rest, "go build"):
			b.runInstruction(rest)
		}
	}
	if b.stages != 2 || !b.built {
		t.Fatalf("%d stages, built %v", b.stages, b.built)
	}
	// The user must be a number, because the image has no /etc/passwd.
	if b.base != "scratch" || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(b.user) {
		t.Errorf("the image is based on %q and runs as %q", b.base, b.user)
	}
	for _, path := range b.copied {
		if _, err := os.Stat(filepath.Join(b.out, path)); err != nil {
			t.Errorf("the image copies a file that was not built: %v", err)
		}
	}
	for _, name := range programs {
		if !slices.Contains(b.copied, name) {
			t.Errorf("the image lacks %s; it has %s", name, b.copied)
		}
		program(t, filepath.Join(b.out, name))
	}
}

type build struct {
	t          *testing.T
	src, out   string // directories with the sources and the results of the first stage
	stages     int
	built      bool
	base, user string   // image and user in the current stage
	copied     []string // files that the second stage copies from the first
}

func (b *build) copyInstruction(args []string) {
	last := len(args) - 1
	switch {
	case b.stages == 1:
		for _, from := range args[:last] {
			copyTo(b.t, filepath.Join(root, from), filepath.Join(b.src, args[last]))
		}
	case args[0] != "--from=build":
		b.t.Errorf("the image contains more than was built: COPY %s", strings.Join(args, " "))
	default:
		for _, from := range args[1:last] {
			// Others are options, or files of the image that builds.
			if strings.HasPrefix(from, "/") && !strings.HasPrefix(from, "/etc/ssl/") {
				b.copied = append(b.copied, from)
			}
		}
	}
}

func (b *build) runInstruction(command string) {
	command = regexp.MustCompile(`--mount=\S+`).ReplaceAllString(command, "")
	cmd := exec.CommandContext(b.t.Context(), "sh", "-ec", strings.ReplaceAll(command, " /", ` "$OUT"/`))
	cmd.Dir = b.src
	cmd.Env = append(os.Environ(),
		"OUT="+b.out, "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "GOFLAGS=-mod=readonly", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%s: %v\n%s", command, err, output)
	}
	b.built = true
}

func program(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s is linked with libraries, which the image lacks", path)
	}
	cmd := exec.CommandContext(t.Context(), path, "--help")
	cmd.Env, cmd.Dir = []string{}, t.TempDir()
	if b, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(b), "CLUSTERPASS_") {
		t.Errorf("%s --help: %v\n%s", path, err, b)
	}
}

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
