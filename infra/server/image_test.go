package main

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

// TestDockerfiles does without an engine what the Dockerfiles of bridge and agent say: it copies what is copied, builds as is built, and
// starts the program with nothing around it.
func TestDockerfiles(t *testing.T) {
	t.Run("bridge", func(t *testing.T) { dockerfile(t, "Dockerfile", "websocket-bridge", "CLUSTERPASS_STORE") })
	t.Run("agent", func(t *testing.T) { dockerfile(t, "agent/Dockerfile", "clusterpass-agent", "CLUSTERPASS_CLUSTER") })
}

// dockerfile does it for one, whose program speaks of a variable in its help.
func dockerfile(t *testing.T, file, name, variable string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	src, out := t.TempDir(), filepath.Join(t.TempDir(), name)
	stages, built, base, user := 0, false, "", ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "FROM":
			stages++
			base, user = rest, ""
		case word == "USER":
			user = rest
		case word == "COPY" && stages == 1:
			args := strings.Fields(rest)
			for _, from := range args[:len(args)-1] {
				copyTo(t, filepath.Join("..", from), filepath.Join(src, args[len(args)-1]))
			}
		case word == "RUN" && strings.Contains(rest, "go build"):
			command := regexp.MustCompile(`--mount=\S+`).ReplaceAllString(rest, "")
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.Replace(command, "-o /"+name+" ", `-o "$OUT" `, 1))
			cmd.Dir = src
			cmd.Env = append(os.Environ(), "OUT="+out, "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "GOFLAGS=-mod=readonly", "GOWORK=off")
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, b)
			}
			built = true
		case word == "COPY" && stages == 2 && !slices.Contains(strings.Fields(rest), "--from=build"):
			t.Errorf("the image gets more than was built: %s", line)
		}
	}
	if stages != 2 || !built {
		t.Fatalf("%d stages, built %v", stages, built)
	}
	if base != "scratch" || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) { // by number: there is no /etc/passwd
		t.Errorf("the image is made from %q and runs as %q", base, user)
	}
	program, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program is linked with libraries that the image has not got")
	}
	cmd := exec.CommandContext(t.Context(), out, "--help")
	cmd.Env, cmd.Dir = []string{}, t.TempDir()
	if b, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(b), variable) {
		t.Errorf("--help: %v\n%s", err, b)
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
