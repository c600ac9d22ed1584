package dir

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/storetest"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

const writeProgram = "write"

func TestMain(m *testing.M) {
	storesuite.Main(m, map[string]storesuite.Program{storesuite.CountProgram: count, writeProgram: writeForever})
}

func count(ctx context.Context, dir string) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	return storetest.CountUp(ctx, s)
}

func writeForever(ctx context.Context, dir string) error {
	s, err := open(dir, historyLimits{maxChanges: 16, maxBytes: 1 << 20, keepChanges: 8, keepBytes: 1 << 20})
	if err != nil {
		return err
	}
	value := bytes.Repeat([]byte("v"), 4_000)
	for i := 0; ; i++ {
		o, err := s.Create(ctx, fmt.Sprintf("things/%d-%d", os.Getpid(), i), value)
		if err != nil {
			return err
		}
		fmt.Printf("%d %s\n", o.Revision, o.Key)
	}
}

func openTemp(t *testing.T, h historyLimits) (*Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects")
	s, err := open(path, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, path
}

func create(t *testing.T, s *Store, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if _, err := s.Create(t.Context(), k, []byte("value of "+k)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIncompleteLastRecordIsRemoved(t *testing.T) {
	s, path := openTemp(t, defaultHistory)
	create(t, s, "a/1", "a/2")
	good, err := os.ReadFile(filepath.Join(path, logName))
	if err != nil {
		t.Fatal(err)
	}
	next, err := appendRecord(nil, record{Type: objects.Created, Key: "a/3", Value: []byte("three"), Revision: 3})
	if err != nil {
		t.Fatal(err)
	}
	// A writer may have died after any byte.
	for cut := 1; cut < len(next); cut++ {
		if err := os.WriteFile(filepath.Join(path, logName), append(bytes.Clone(good), next[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), "a/3"); !errors.Is(err, objects.ErrNotFound) {
			t.Fatalf("cut after %d bytes: Get of what was not written: %v, want ErrNotFound", cut, err)
		}
		now, err := os.ReadFile(filepath.Join(path, logName))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(now, good) {
			t.Fatalf("cut after %d bytes: the log still ends in %q", cut, now[len(good):])
		}
	}
	create(t, s, "a/3")
	if rev, err := s.Revision(t.Context()); err != nil || rev != 3 {
		t.Errorf("revision %d, %v; want 3", rev, err)
	}
}

func TestDamageIsAnError(t *testing.T) {
	s, path := openTemp(t, defaultHistory)
	create(t, s, "a/1", "a/2", "a/3")
	name := filepath.Join(path, logName)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.Index(good, []byte(`"a/2"`))
	for _, damaged := range [][]byte{
		bytes.Replace(good, []byte(`"a/2"`), []byte(`"a/9"`), 1),
		append(append(bytes.Clone(good[:second]), '\n'), good[second+1:]...),
	} {
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("Open of a damaged log: %v, want an error that says so", err)
		}
		if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, damaged) {
			t.Errorf("Open changed a damaged log: %v", err)
		}
	}
	if err := os.WriteFile(name, good[:second], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "a/1"); !errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("Get after the log became shorter: %v, want ErrUnavailable", err)
	}
}

func TestOpenRefusesADirectoryOthersMayWrite(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, objects.ErrForbidden) || !strings.Contains(err.Error(), "chmod 700 "+path) {
		t.Errorf("Open: %v, want ErrForbidden and what to chmod", err)
	}
}

// TestOpenNamesAFaultyLog: the user must learn whether to correct the mode of the log or to replace a link.
func TestOpenNamesAFaultyLog(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(log string) error
		want    string
	}{
		"wide mode": {func(log string) error {
			return errors.Join(os.WriteFile(log, nil, 0o600), os.Chmod(log, 0o620))
		}, "(mode 0620): chmod 600 "},
		"symbolic link": {func(log string) error { return os.Symlink("elsewhere", log) }, "is a symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			if err := errors.Join(os.Chmod(path, 0o700), c.prepare(filepath.Join(path, logName))); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); !errors.Is(err, objects.ErrForbidden) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want ErrForbidden and %q", err, c.want)
			}
		})
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

func TestCompactsByItself(t *testing.T) {
	s, path := openTemp(t, historyLimits{maxChanges: 10, maxBytes: 1 << 20, keepChanges: 4, keepBytes: 1 << 20})
	other, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	create(t, s, "a/kept")
	o, err := s.Create(t.Context(), "a/busy", []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 100; i++ {
		if o, err = s.Update(t.Context(), "a/busy", strconv.AppendInt(nil, int64(i), 10), o.Revision); err != nil {
			t.Fatal(err)
		}
	}
	fresh, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	for name, s := range map[string]*Store{"the writer": s, "a reader from before": other, "a reader from after": fresh} {
		page, err := s.List(t.Context(), "a/", 0, "")
		if err != nil {
			t.Fatal(err)
		}
		if page.Revision != 102 || len(page.Objects) != 2 || string(page.Objects[0].Value) != "100" ||
			page.Objects[0].Created != 2 || page.Objects[1].Revision != 1 {
			t.Errorf("%s sees %+v", name, page)
		}
		if err := s.Watch(t.Context(), "", 50, func(objects.Event) error { return nil }, nil); !errors.Is(err,
			objects.ErrCompacted) {
			t.Errorf("%s: Watch from 50: %v, want ErrCompacted", name, err)
		}
		done := errors.New("done")
		var got []string
		err = s.Watch(t.Context(), "", 99, func(e objects.Event) error {
			got = append(got, string(e.Previous)+">"+string(e.Object.Value))
			if e.Object.Revision == 102 {
				return done
			}
			return nil
		}, nil)
		if want := "[97>98 98>99 99>100]"; !errors.Is(err, done) || fmt.Sprint(got) != want {
			t.Errorf("%s: Watch from 99: %v, %v; want %s", name, got, err, want)
		}
	}
}

// TestKilledWriters kills writers at random moments. Every reported write must exist, and the store must stay usable.
func TestKilledWriters(t *testing.T) {
	s, path := openTemp(t, defaultHistory)
	written := map[string]uint64{}
	for round := range 4 {
		var procs []*exec.Cmd
		lines := make(chan string)
		for range 2 {
			cmd := storesuite.Command(t, writeProgram, path)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			procs = append(procs, cmd)
			go func() {
				for sc := bufio.NewScanner(out); sc.Scan(); {
					lines <- sc.Text()
				}
				lines <- ""
			}()
		}
		note := func(line string) {
			rev, key, _ := strings.Cut(line, " ")
			n, err := strconv.ParseUint(rev, 10, 64)
			if err != nil {
				t.Fatalf("a writer printed %q", line)
			}
			written[key] = n
		}
		for range 15 + 5*round {
			note(<-lines)
		}
		for _, p := range procs {
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for ended := 0; ended < len(procs); {
			if line := <-lines; line == "" {
				ended++
			} else {
				note(line)
			}
		}
		for _, p := range procs { // killed
			_ = p.Wait() // killed
		}
		page, err := s.List(t.Context(), "things/", 0, "")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]uint64{}
		for _, o := range page.Objects {
			found[o.Key] = o.Revision
		}
		for k, rev := range written {
			if found[k] != rev {
				t.Fatalf("round %d: %s was written at revision %d, is at %d", round, k, rev, found[k])
			}
		}
		if n := len(found); uint64(n) != page.Revision || n > len(written)+2*(round+1) {
			t.Fatalf("round %d: %d objects at revision %d, %d were reported", round, n, page.Revision, len(written))
		}
	}
}

func FuzzLog(f *testing.F) {
	const good = `{"format":1,"snapshot":4}
{"key":"a/1","value":"b25l","revision":4,"created":2}
{"type":"UPDATED","key":"a/1","value":"dHdv","revision":5}
{"type":"DELETED","key":"a/1","revision":6}
`
	f.Add([]byte(good), true)
	f.Add([]byte(good), false)
	f.Fuzz(func(t *testing.T, b []byte, sums bool) {
		if sums { // valid checksums let the fuzzer reach the JSON
			var summed []byte
			for line := range bytes.Lines(b) {
				line = bytes.TrimSuffix(line, []byte("\n"))
				summed = fmt.Appendf(summed, "%x %s\n", appendSum(nil, line), line)
			}
			b = summed
		}
		s := newState()
		n, err := parseRecords(b, s.apply)
		if n > len(b) || err == nil && n != len(b) {
			t.Fatalf("%d of %d bytes, %v", n, len(b), err)
		}
		if err != nil {
			return
		}
		// A log that is accepted has the same state after a compaction to any revision.
		for to := s.first; to <= s.rev; to++ {
			c, err := s.compacted(to)
			if err != nil {
				t.Fatal(err)
			}
			again := newState()
			if _, err := parseRecords(c, again.apply); err != nil {
				t.Fatalf("compacted to %d: %v", to, err)
			}
			if fmt.Sprint(again.objects) != fmt.Sprint(s.objects) || again.rev != s.rev || again.first != to {
				t.Fatalf("compacted to %d: %v became %v", to, s, again)
			}
		}
	})
}

func BenchmarkStore(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "objects"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	value := bytes.Repeat([]byte("v"), 2000)
	if _, err := s.Create(b.Context(), "clusters/member1", value); err != nil {
		b.Fatal(err)
	}
	b.Run("get", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Get(b.Context(), "clusters/member1"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		o, err := s.Get(b.Context(), "clusters/member1")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if o, err = s.Update(b.Context(), o.Key, value, o.Revision); err != nil {
				b.Fatal(err)
			}
		}
	})
}
