package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

func auditFiles(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob(strings.TrimSuffix(path, ".log") + "*.log")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestRotationLosesNoEvent: what many requests write at once is whole, private, and in files of bounded size.
func TestRotationLosesNoEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := File{Path: path, MaxSize: 1, MaxBackups: 20}.Open()
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 400 // three files
	l := New(Config{To: f, Queue: writers * each, Log: quiet})
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				record(l, "/"+strings.Repeat("a", 500))
			}
		})
	}
	wg.Wait()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	files := auditFiles(t, path)
	if len(files) < 3 {
		t.Errorf("%v", files)
	}
	n := 0
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 1<<20 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n += len(events(t, data))
	}
	if n != writers*each || l.Stats().Lost != 0 {
		t.Errorf("%d events, %d lost", n, l.Stats().Lost)
	}
}

// TestOldFilesAreBounded: an audit log does not fill the disk of a server, however long the server runs.
func TestOldFilesAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := File{Path: path, MaxSize: 1, MaxBackups: 2}.Open()
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("a", 256<<10) + "\n")
	for range 40 { // thirteen files
		if _, err := f.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "old files are deleted", func() bool { return len(auditFiles(t, path)) <= 3 })
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A process must not write into a file that another one has rotated. The events would be deleted with it.
func TestProcessesShareOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	var processes [2]interface {
		Write(p []byte) (int, error)
		Close() error
	}
	for i := range processes {
		var err error
		if processes[i], err = (File{Path: path, MaxSize: 1}).Open(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(process int, text string) {
		t.Helper()
		if _, err := processes[process].Write([]byte(text + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	half := strings.Repeat("a", 600<<10)
	write(0, "first of 0")
	write(1, half)
	write(1, half) // in a new file
	write(0, "second of 0")
	write(1, "last of 1")
	write(0, "last of 0")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := half + "\nsecond of 0\nlast of 1\nlast of 0\n"; string(data) != want || len(auditFiles(t, path)) != 2 {
		t.Errorf("%d bytes, want %d, in %d files, ending in %.60q", len(data), len(want), len(auditFiles(t, path)),
			data[max(0, len(data)-60):])
	}
	for _, p := range processes {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFileRefused(t *testing.T) {
	const want = ": want an absolute path, and no negative size or number"
	for path, f := range map[string]File{`"x"`: {Path: "x"}, `"/x"`: {Path: "/x", MaxBackups: -1}} {
		if _, err := f.Open(); err == nil || err.Error() != "audit file "+path+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := (File{Path: filepath.Join(t.TempDir(), "no", "dir")}).Open(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
