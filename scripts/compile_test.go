package scripts

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// fakeGo plays the go command. It compiles 250 packages, and fails if the last argument is ./broken.
const fakeGo = `#!/bin/sh
if [ "$1" = list ]; then seq 1000; exit; fi
echo "$@" "CGO_ENABLED=$CGO_ENABLED"
echo "go: downloading example.test/module v1.0.0" >&2
for i in $(seq 250); do echo "example.test/package/p$i" >&2; done
for last; do :; done
[ "$last" != ./broken ] || { echo "./main.go:3:2: undefined: x" >&2; exit 1; }
`

// The first build lasts for minutes. It must show its progress, and the errors of the compiler.
func TestCompileCountsPackages(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(fakeGo), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args     []string
		wantCode int
		wantEnd  string
	}{
		"success": {[]string{"dist/", "./a", "./b"}, 0, ""},
		"failure": {[]string{"dist/x", "./broken"}, 1, "./main.go:3:2: undefined: x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := script(t, "./compile", tt.args...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			wantExitCode(t, cmd.Run(), tt.wantCode)
			want := "build -v -ldflags -s -w -o " + tt.args[0]
			for _, pkg := range tt.args[1:] {
				want += " " + pkg
			}
			want += " CGO_ENABLED=0\ngo: downloading example.test/module v1.0.0\n" +
				"compiled 100 of 1000 packages\ncompiled 200 of 1000 packages\n" + tt.wantEnd
			if stderr.String() != want {
				t.Errorf("it prints %q, want %q", &stderr, want)
			}
		})
	}
	out, err := script(t, "./compile", "dist/").CombinedOutput()
	wantExitCode(t, err, 2)
	if !bytes.Contains(out, []byte("usage: scripts/compile TARGET PACKAGE...")) {
		t.Errorf("got %q, want the usage", out)
	}
}
