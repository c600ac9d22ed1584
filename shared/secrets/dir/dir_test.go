package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

const kubeconfig = "apiVersion: v1\nkind: Config\nclusters: []\n"

func open(t *testing.T) (*Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, path
}

func drop(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestDroppedInFileIsASecret(t *testing.T) {
	s, path := open(t)
	file := filepath.Join(path, "clusters/member1")
	drop(t, file, kubeconfig, 0o600)
	got, err := s.Get(t.Context(), "clusters/member1")
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Value.Reveal()) != kubeconfig || got.Labels != nil || got.Version == "" || got.Updated.IsZero() {
		t.Errorf("got %+v", got)
	}

	// An edit in place is a new version, so the old one can no longer be replaced.
	drop(t, file, kubeconfig+"users: []\n", 0o600)
	edited, err := s.Get(t.Context(), "clusters/member1")
	if err != nil {
		t.Fatal(err)
	}
	if edited.Version == got.Version {
		t.Error("an edit left the version as it was")
	}
	if _, err := s.Replace(t.Context(), "clusters/member1", got.Version, secrets.NewValue([]byte("x"))); !errors.Is(err,
		secrets.ErrConflict) {
		t.Errorf("Replace of the version before the edit: %v, want ErrConflict", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "clusters/member1"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("Get of a removed file: %v, want ErrNotFound", err)
	}
}

func TestFileStaysAKubeconfig(t *testing.T) {
	s, path := open(t)
	for _, labels := range []map[string]string{nil, {"env": "prod"}} {
		name := "plain"
		if labels != nil {
			name = "labelled"
		}
		if _, err := s.Create(t.Context(), name, secrets.NewValue([]byte(kubeconfig)), labels); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		want := kubeconfig
		if labels != nil {
			want = "# clusterpass labels: {\"env\":\"prod\"}\n" + kubeconfig
		}
		if string(b) != want {
			t.Errorf("%s: file is %q, want %q", name, b, want)
		}
		fi, err := os.Stat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != 0o600 {
			t.Errorf("%s: mode %v, want 0600", name, fi.Mode())
		}
	}
}

func TestRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	drop(t, outside, kubeconfig, 0o600)
	tests := []struct {
		name     string
		prepare  func(t *testing.T, path string)
		get      string
		want     error
		wantText string
	}{
		{
			"file readable by the group", func(t *testing.T, p string) { drop(t, p+"/a", kubeconfig, 0o640) }, "a",
			secrets.ErrForbidden, "chmod 600 ",
		},
		{
			"file readable by all", func(t *testing.T, p string) { drop(t, p+"/a", kubeconfig, 0o604) }, "a",
			secrets.ErrForbidden, "chmod 600 ",
		},
		{"folder open to all", func(t *testing.T, p string) {
			drop(t, p+"/d/a", kubeconfig, 0o600)
			if err := os.Chmod(p+"/d", 0o755); err != nil {
				t.Fatal(err)
			}
		}, "d/a", secrets.ErrForbidden, "chmod 700 "},
		{
			"symbolic link out", func(t *testing.T, p string) { link(t, outside, p+"/a") }, "a", secrets.ErrForbidden,
			"symbolic link",
		},
		{
			"symbolic link within", func(t *testing.T, p string) { drop(t, p+"/b", kubeconfig, 0o600); link(t, "b", p+"/a") },
			"a", secrets.ErrForbidden, "symbolic link",
		},
		{
			"folder is a symbolic link", func(t *testing.T, p string) { link(t, filepath.Dir(outside), p+"/d") }, "d/outside",
			secrets.ErrForbidden, "symbolic link",
		},
		{"pipe", func(t *testing.T, p string) {
			if err := syscall.Mkfifo(p+"/a", 0o600); err != nil {
				t.Fatal(err)
			}
		}, "a", secrets.ErrForbidden, "special file"},
		{"empty file", func(t *testing.T, p string) { drop(t, p+"/a", "", 0o600) }, "a", secrets.ErrInvalid, "0 bytes"},
		{
			"huge file", func(t *testing.T, p string) { drop(t, p+"/a", strings.Repeat("x", maxFile+1), 0o600) }, "a",
			secrets.ErrInvalid, "more than",
		},
		{
			"labels that are no JSON", func(t *testing.T, p string) { drop(t, p+"/a", header+"env=prod\n"+kubeconfig, 0o600) },
			"a", secrets.ErrInvalid, "JSON",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, path := open(t)
			drop(t, path+"/fine", kubeconfig, 0o600)
			tt.prepare(t, path)
			_, err := s.Get(t.Context(), tt.get)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.wantText) ||
				!strings.Contains(err.Error(), path) && tt.wantText != "0 bytes" {
				t.Errorf("Get: %v, want %v with %q and the path", err, tt.want, tt.wantText)
			}
			metas, err := s.List(t.Context(), nil)
			if !errors.Is(err, tt.want) {
				t.Errorf("List: %v, want %v", err, tt.want)
			}
			fine := false
			for _, m := range metas {
				fine = fine || m.Name == "fine"
			}
			if !fine {
				t.Errorf("List leaves out the secret that is fine: %v", metas)
			}
		})
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesAWideDirectory(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o750); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if !errors.Is(err, secrets.ErrForbidden) || !strings.Contains(err.Error(), "chmod 700 "+path) {
		t.Errorf("Open: %v, want ErrForbidden and what to chmod", err)
	}
}

// TestOpenWithoutAWorkingDirectory: the error must name the path that the user gave.
func TestOpenWithoutAWorkingDirectory(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("data"); err == nil || !strings.Contains(err.Error(), "in data: ") {
		t.Errorf("Open: %v, want an error that names data", err)
	}
}

func TestOpenRemovesWhatADeadWriterLeft(t *testing.T) {
	s, path := open(t)
	if _, err := s.Create(t.Context(), "d/a", secrets.NewValue([]byte("v")), nil); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(path, "d", tmpPrefix+"DEAD")
	drop(t, left, "half", 0o600)
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
	// Versions are the same for every process.
	one, err := s.Get(t.Context(), "d/a")
	if err != nil {
		t.Fatal(err)
	}
	two, err := again.Get(t.Context(), "d/a")
	if err != nil {
		t.Fatal(err)
	}
	if one.Version != two.Version {
		t.Errorf("versions %q and %q of one secret", one.Version, two.Version)
	}
}

func TestFolderAndSecretOfOneName(t *testing.T) {
	s, path := open(t)
	v := secrets.NewValue([]byte("v"))
	if _, err := s.Create(t.Context(), "a/b", v, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "a", v, nil); !errors.Is(err, secrets.ErrInvalid) {
		t.Errorf("Create of a folder's name: %v, want ErrInvalid", err)
	}
	if _, err := s.Create(t.Context(), "a/b/c", v, nil); !errors.Is(err, secrets.ErrInvalid) {
		t.Errorf("Create below a secret: %v, want ErrInvalid", err)
	}
	for _, name := range []string{"a", "a/b/c"} {
		if _, err := s.Get(t.Context(), name); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("Get %s: %v, want ErrNotFound", name, err)
		}
	}
	if err := s.Delete(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(path, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty folder is still there: %v", err)
	}
	if _, err := s.Create(t.Context(), "a", v, nil); err != nil {
		t.Errorf("Create after the folder has gone: %v", err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(kubeconfig), "env", "prod")
	f.Add([]byte(header+"{}\n"), "", "")
	f.Add([]byte(header), "a", "")
	f.Fuzz(func(t *testing.T, content []byte, key, value string) {
		// Any file is an error, or a secret that can be written back unchanged.
		if v, labels, err := decode(content); err == nil {
			check(t, v, labels)
		}
		// Any value can be read back.
		labels := map[string]string{key: value}
		if secrets.ValidLabels(labels) != nil {
			labels = nil
		}
		check(t, secrets.NewValue(content), labels)
	})
}

func check(t *testing.T, v secrets.Value, labels map[string]string) {
	b, err := encode(v, labels)
	if err != nil {
		t.Fatal(err)
	}
	gotV, gotLabels, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !gotV.Equal(v) || len(gotLabels) != len(labels) {
		t.Fatalf("%q %v came back as %q %v", v.Reveal(), labels, gotV.Reveal(), gotLabels)
	}
	for k, v := range labels {
		if gotLabels[k] != v {
			t.Fatalf("label %q=%q came back as %q", k, v, gotLabels[k])
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "secrets"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(b.Context(), "clusters/member1", secrets.NewValue([]byte(strings.Repeat("k", 4096))),
		nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Get(b.Context(), "clusters/member1"); err != nil {
			b.Fatal(err)
		}
	}
}
