package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// buildProgram builds clusterpass without the race detector, with which a key of a passphrase needs 15 s.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "clusterpass")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // make test sets GOFLAGS, so that compiled packages are reused
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	return program
}

// TestBackups: the command must work in a pipeline, and refuse what cannot be restored.
func TestBackups(t *testing.T) {
	program := buildProgram(t)
	c, kc := setup(t)
	addLab(t, c, kc)
	t.Run("standard streams", func(t *testing.T) { testBackupByStandardStreams(t, program, c) })
	t.Run("refused restore", func(t *testing.T) { testRefusedRestore(t, program, c) })
}

// testBackupByStandardStreams: a pipeline to another machine must work, and ask nothing.
func testBackupByStandardStreams(t *testing.T, program string, c clusterpass) {
	passphrase := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(passphrase, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var file, messages bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "--store", c.store, "backup", "-", "--passphrase-file", passphrase)
	cmd.Stdout, cmd.Stderr = &file, &messages
	if err := cmd.Run(); err != nil || !strings.Contains(messages.String(), "is backed up: ") {
		t.Fatalf("%s%v", messages.String(), err)
	}
	to := clusterpass{"dir:" + filepath.Join(t.TempDir(), "to")}
	cmd = exec.CommandContext(t.Context(), program, "--store", to.store, "restore", "-", "--passphrase-file", passphrase)
	cmd.Stdin = &file
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if shown, err := to.run(t, "cluster", "show", "lab"); err != nil || !strings.Contains(shown, "region: eu") {
		t.Errorf("%s%v", shown, err)
	}
}

// testRefusedRestore fails if a wrong file or a short passphrase leaves something behind.
func testRefusedRestore(t *testing.T, program string, c clusterpass) {
	run := func(t *testing.T, store string, args ...string) (string, error) {
		args = append([]string{"--store", store}, args...)
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		return string(out), err
	}
	dir := t.TempDir()
	file, target := filepath.Join(dir, "backup"), filepath.Join(dir, "target")
	t.Setenv(passphraseVariable, "short")
	if out, err := run(t, c.store, "backup", file); err == nil || !strings.Contains(out, "at least 12") {
		t.Errorf("a short passphrase: %s%v", out, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", left, err)
	}
	t.Setenv(passphraseVariable, "correct horse battery")
	if out, err := run(t, c.store, "backup", file); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)-20] ^= 1
	for name, tt := range map[string]struct {
		file             []byte
		passphrase, want string
	}{
		"wrong passphrase": {whole, "wrong horse battery", "the passphrase is wrong"},
		"cut file":         {whole[:len(whole)-1], "correct horse battery", "damaged or incomplete"},
		"changed byte":     {changed, "correct horse battery", "damaged or incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, tt.file, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv(passphraseVariable, tt.passphrase)
			out, err := run(t, "dir:"+target, "restore", file)
			if err == nil || !strings.Contains(out, tt.want) {
				t.Errorf("%s%v, want %s", out, err, tt.want)
			}
			if _, err := os.Stat(target); !os.IsNotExist(err) {
				t.Errorf("the store was created: %v", err)
			}
		})
	}
}
