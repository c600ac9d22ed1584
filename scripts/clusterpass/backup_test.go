package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupByStandardStreams: a pipeline to another machine must work, and ask nothing.
func TestBackupByStandardStreams(t *testing.T) {
	c, kc := setup(t)
	addLab(t, c, kc)
	passphrase := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(passphrase, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var file, messages bytes.Buffer
	cmd := root()
	cmd.SetOut(&file)
	cmd.SetErr(&messages)
	cmd.SetArgs([]string{"--store", c.store, "backup", "-", "--passphrase-file", passphrase})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(messages.String(), "is backed up: ") {
		t.Fatalf("%s%v", messages.String(), err)
	}
	cmd = root()
	var out bytes.Buffer
	cmd.SetIn(&file)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	to := clusterpass{"dir:" + filepath.Join(t.TempDir(), "to")}
	cmd.SetArgs([]string{"--store", to.store, "restore", "-", "--passphrase-file", passphrase})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%s%v", out.String(), err)
	}
	if shown, err := to.run(t, "cluster", "show", "lab"); err != nil || !strings.Contains(shown, "region: eu") {
		t.Errorf("%s%v", shown, err)
	}
}

// TestRefusedRestoreWritesNothing fails if a wrong file or a short passphrase leaves something behind.
func TestRefusedRestoreWritesNothing(t *testing.T) {
	c, kc := setup(t)
	addLab(t, c, kc)
	dir := t.TempDir()
	file, target := filepath.Join(dir, "backup"), filepath.Join(dir, "target")
	t.Setenv(passphraseVariable, "short")
	if out, err := c.run(t, "backup", file); err == nil || !strings.Contains(err.Error(), "at least 12") {
		t.Errorf("a short passphrase: %s%v", out, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", left, err)
	}
	t.Setenv(passphraseVariable, "correct horse battery")
	if out, err := c.run(t, "backup", file); err != nil {
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
			out, err := (clusterpass{"dir:" + target}).run(t, "restore", file)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s%v, want %s", out, err, tt.want)
			}
			if _, err := os.Stat(target); !os.IsNotExist(err) {
				t.Errorf("the store was created: %v", err)
			}
		})
	}
}
