package dirstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "recordings")
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestDirectory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) recording.Store { return open(t, Config{}) })
}

func put(t *testing.T, s *Store, id string, number int, part string) {
	t.Helper()
	if err := s.Put(t.Context(), id, number, []byte(part)); err != nil {
		t.Fatal(err)
	}
}

// TestFilesAreOnlyForTheirOwner fails if other users of the machine can read recordings.
func TestFilesAreOnlyForTheirOwner(t *testing.T) {
	s := open(t, Config{})
	put(t, s, recording.NewID(time.Now()), 0, "x")
	err := filepath.WalkDir(s.cfg.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %04o", path, fi.Mode().Perm())
		}
		if strings.HasPrefix(d.Name(), tmpPrefix) {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: open}); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("a directory that is open to others: %v", err)
	}
	copied, err := OpenExisting(open) // an auditor's copy
	if err != nil {
		t.Fatal(err)
	}
	_ = copied.Close()
}

// TestVolumeOfPodIsUsed fails if a gateway in a pod does not start with a volume, or if an open session ends when
// another pod starts. kubelet then gives the group of the pod access to all that is in the volume.
func TestVolumeOfPodIsUsed(t *testing.T) {
	mount := t.TempDir()
	if err := os.Chmod(mount, fs.ModeSetgid|0o775); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(mount, "recordings")
	first := open(t, Config{Path: path})
	id := recording.NewID(time.Now())
	put(t, first, id, 0, "x")
	wantPrivate(t, path, filepath.Join(path, id))
	openToGroup(t, mount)
	put(t, first, id, 1, "y")
	wantPrivate(t, filepath.Join(path, id))
	second := open(t, Config{Path: path})
	wantPrivate(t, path)
	put(t, second, id, 2, "z")
}

// openToGroup changes modes as kubelet does for a pod with fsGroup.
func openToGroup(t *testing.T, volume string) {
	t.Helper()
	err := filepath.WalkDir(volume, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		mode := fi.Mode() | 0o660
		if d.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantPrivate(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s has the mode %v, %v; want 0700", path, fi.Mode(), err)
		}
	}
}

func TestRefusedDirectories(t *testing.T) {
	if _, err := Open(Config{Path: "relative"}); err == nil {
		t.Error("a relative path is accepted")
	}
	if _, err := Open(Config{Path: t.TempDir(), MaxSize: -1}); err == nil {
		t.Error("a negative limit is accepted")
	}
	if _, err := OpenExisting(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestForeignFilesAreIgnored fails if a file of another program, or a link, is read as a part.
func TestForeignFilesAreIgnored(t *testing.T) {
	s := open(t, Config{})
	id := recording.NewID(time.Now())
	put(t, s, id, 0, "x")
	for _, name := range []string{"1.cast", "00000001.cast.bak", "-0000001.cast", "README"} {
		if err := os.WriteFile(filepath.Join(s.cfg.Path, id, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.cfg.Path, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if parts, err := s.Parts(t.Context(), id); err != nil || len(parts) != 1 {
		t.Errorf("parts %v, %v", parts, err)
	}
	if ids, err := s.List(t.Context(), ""); err != nil || !slices.Equal(ids, []string{id}) {
		t.Errorf("ids %v, %v", ids, err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(secret, filepath.Join(s.cfg.Path, id, "00000001.cast"))); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), id, 1); err == nil {
		t.Errorf("a link is read: %q", got)
	}
	large := filepath.Join(s.cfg.Path, id, "00000002.cast")
	if err := os.WriteFile(large, make([]byte, recording.MaxPart+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), id, 2); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a large part: %v", err)
	}
}

// age sets the times of a recording's directory and of all its files.
func age(t *testing.T, s *Store, id string, at time.Time) {
	t.Helper()
	parts, err := s.Parts(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if err := os.Chtimes(filepath.Join(s.cfg.Path, id, recording.PartName(p.Number)), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(s.cfg.Path, id), at, at); err != nil {
		t.Fatal(err)
	}
}

func wantIDs(t *testing.T, s *Store, want ...string) {
	t.Helper()
	got, err := s.List(t.Context(), "")
	want = slices.Sorted(slices.Values(want))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the directory has %v, %v; want %v", got, err, want)
	}
}

// TestRetentionDeletesOldRecordings fails if old recordings stay, or new ones are deleted.
func TestRetentionDeletesOldRecordings(t *testing.T) {
	now := time.Now()
	s := open(t, Config{MaxAge: time.Hour})
	old, long, young := recording.NewID(now), recording.NewID(now), recording.NewID(now)
	for _, id := range []string{old, long, young} {
		put(t, s, id, 0, "x")
	}
	age(t, s, old, now.Add(-2*time.Hour))
	age(t, s, long, now.Add(-2*time.Hour))
	put(t, s, long, 1, "its session still runs")
	if err := s.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s, long, young)
	if err := s.Put(t.Context(), old, 1, []byte("x")); !errors.Is(err, recording.ErrNotFound) {
		t.Errorf("a part of a deleted recording: %v", err)
	}
}

// TestRetentionLimitsSize fails if recordings fill the disk, or if others than those that were written first go.
func TestRetentionLimitsSize(t *testing.T) {
	now := time.Now()
	s := open(t, Config{MaxSize: 60 * block})
	var ids []string
	for n := range 40 { // 80 blocks, of which the directories have a half
		id := recording.NewID(now)
		put(t, s, id, 0, "x")
		age(t, s, id, now.Add(time.Duration(n-100)*time.Second))
		ids = append(ids, id)
	}
	if err := s.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s, ids[len(ids)-30:]...)
	// The recording that is written stays, although it was written first and is the largest.
	last := ids[len(ids)-1]
	release := s.Keep(last)
	defer release()
	put(t, s, last, 1, strings.Repeat("y", 30*block))
	age(t, s, last, now.Add(-time.Hour))
	if err := s.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s, ids[len(ids)-15:]...)
}

// TestOpenSessionsCannotFillDisk fails if sessions that stay open fill the disk, which would end those of other users.
// A small session must not end because of a large one.
func TestOpenSessionsCannotFillDisk(t *testing.T) {
	s := open(t, Config{MaxSize: 20 * block})
	large, small := recording.NewID(time.Now()), recording.NewID(time.Now())
	defer s.Keep(large)()
	release := s.Keep(small)
	put(t, s, large, 0, strings.Repeat("x", 9*block))
	put(t, s, small, 0, "x")
	put(t, s, small, 1, "x") // the eleventh block
	if err := s.Put(t.Context(), large, 1, []byte("x")); err == nil || !strings.Contains(err.Error(), "the largest") {
		t.Errorf("a further part of the large recording: %v", err)
	}
	put(t, s, small, 2, strings.Repeat("x", 8*block))
	must(t, s.Enforce(t.Context()))
	wantIDs(t, s, small)
	if err := s.Put(t.Context(), small, 3, []byte("x")); err == nil {
		t.Error("the remaining recording may have more than the half of the limit")
	}
	release()
	next := recording.NewID(time.Now())
	defer s.Keep(next)()
	put(t, s, next, 0, strings.Repeat("x", 10*block))
}

// TestPutDeletesNothing fails if a deletion that is slow, or fails, can fail the session whose part was stored.
func TestPutDeletesNothing(t *testing.T) {
	s := open(t, Config{MaxSize: 80 * block})
	old, long := recording.NewID(time.Now()), recording.NewID(time.Now())
	put(t, s, old, 0, strings.Repeat("x", 50*block))
	age(t, s, old, time.Now().Add(-time.Hour))
	defer s.Keep(long)()
	for number := range 3 {
		put(t, s, long, number, strings.Repeat("x", 10*block))
	}
	wantIDs(t, s, old, long)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	waitForIDs := func(want ...string) {
		t.Helper()
		waittest.Until(t, "only recordings within the limit are left", func() bool {
			ids, err := s.List(t.Context(), "")
			return err == nil && slices.Equal(ids, want)
		})
	}
	waitForIDs(long)
	ended := recording.NewID(time.Now())
	put(t, s, ended, 0, strings.Repeat("x", 48*block))
	put(t, s, long, 3, strings.Repeat("x", 10*block)) // without a signal, the next check would be a minute later
	waitForIDs(long)
	cancel()
	<-done
}

// TestRetentionKeepsOpenRecordingsOfOthers fails if another bridge with the same directory deletes the recording of a
// session that is open and quiet before those that ended.
func TestRetentionKeepsOpenRecordingsOfOthers(t *testing.T) {
	cfg := Config{Path: filepath.Join(t.TempDir(), "recordings"), MaxAge: time.Hour, MaxSize: 14 * block}
	own, other := open(t, cfg), open(t, cfg)
	quiet, ended := recording.NewID(time.Now()), recording.NewID(time.Now())
	for _, id := range []string{quiet, ended} {
		put(t, own, id, 0, strings.Repeat("x", 10*block))
		age(t, own, id, time.Now().Add(-2*time.Hour))
	}
	age(t, own, ended, time.Now().Add(-2*time.Minute))
	defer own.Keep(quiet)()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	own.Run(ctx) // once
	if err := other.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, other, quiet)
}

// TestRetentionKeepsOpenRecordings fails if a user with much output removes the recordings of sessions that still run.
func TestRetentionKeepsOpenRecordings(t *testing.T) {
	s := open(t, Config{MaxSize: 4 * block, MaxAge: time.Hour})
	signer, _ := storetest.NewSigner(t)
	quiet, err := recording.New(recording.Config{Store: s, Signer: signer}).Begin(t.Context(), recording.Info{})
	if err != nil {
		t.Fatal(err)
	}
	age(t, s, quiet.ID(), time.Now().Add(-2*time.Hour))
	loud := recording.NewID(time.Now())
	put(t, s, loud, 0, strings.Repeat("x", 10*block))
	if err := s.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s, quiet.ID())
	if err := quiet.Close(); err != nil {
		t.Fatal(err)
	}
	age(t, s, quiet.ID(), time.Now().Add(-2*time.Hour))
	if err := s.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s)
}

// TestRetentionDeletesFirstWhatNeverBegan fails if directories that a killed or failing recorder left replace evidence.
// The directory of a session that is just beginning must not be deleted before old recordings.
func TestRetentionDeletesFirstWhatNeverBegan(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string // in the directory of a recording that was last written after ended ones
		last  time.Duration     // its age
		goes  bool
	}{
		"empty directory":              {nil, 2 * time.Hour, true},
		"empty first part":             {map[string]string{recording.PartName(0): ""}, 2 * time.Hour, true},
		"no first part":                {map[string]string{recording.PartName(1): "x"}, 2 * time.Hour, true},
		"first part":                   {map[string]string{recording.PartName(0): "x"}, 2 * time.Hour, false},
		"another process is beginning": {map[string]string{tmpPrefix + "A": "x"}, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{MaxSize: 8 * block})
			at, id := time.Now().Add(-tt.last), recording.NewID(time.Now())
			dir := filepath.Join(s.cfg.Path, id)
			must(t, os.Mkdir(dir, 0o700))
			for file, content := range tt.files {
				must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
				must(t, os.Chtimes(filepath.Join(dir, file), at, at))
			}
			must(t, os.Chtimes(dir, at, at))
			var ended []string
			for n := range 4 { // each has two blocks
				ended = append(ended, recording.NewID(time.Now()))
				put(t, s, ended[n], 0, "x")
				age(t, s, ended[n], time.Now().Add(time.Duration(n-100)*time.Hour))
			}
			release := s.Keep(id)
			must(t, s.Enforce(t.Context())) // this process has it open
			wantIDs(t, s, append(slices.Clone(ended[1:]), id)...)
			put(t, s, ended[0], 0, "x")
			age(t, s, ended[0], time.Now().Add(-100*time.Hour))
			release()
			must(t, s.Enforce(t.Context()))
			if tt.goes {
				wantIDs(t, s, ended...)
			} else {
				wantIDs(t, s, append(slices.Clone(ended[1:]), id)...)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFailedFirstPartLeavesNothing fails if each session that a full disk refuses leaves a directory.
func TestFailedFirstPartLeavesNothing(t *testing.T) {
	s := open(t, Config{})
	unreadable, err := syscall.Mmap(-1, 0, block, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Munmap(unreadable) })
	id := recording.NewID(time.Now())
	if err := s.Put(t.Context(), id, 0, unreadable); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("a part that cannot be written: %v", err)
	}
	wantIDs(t, s)
	put(t, s, id, 0, "x")
	if err := s.Put(t.Context(), id, 1, unreadable); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("a later part that cannot be written: %v", err)
	}
	wantIDs(t, s, id)
}

// TestInterruptedDeletionContinues fails if a crash leaves recordings for ever, or a part of one in lists.
func TestInterruptedDeletionContinues(t *testing.T) {
	s := open(t, Config{MaxAge: time.Hour})
	id := recording.NewID(time.Now())
	put(t, s, id, 0, "x")
	tmp := filepath.Join(s.cfg.Path, id, tmpPrefix+"A")
	deleted := filepath.Join(s.cfg.Path, deletedPrefix+recording.NewID(time.Now()))
	if err := errors.Join(os.WriteFile(tmp, nil, 0o600), os.Chtimes(tmp, time.Time{}, time.Now().Add(-2*time.Hour)),
		os.Mkdir(deleted, 0o700), os.WriteFile(filepath.Join(deleted, "00000001.cast"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s, id)
	if err := s.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{tmp, deleted} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that it is gone", path, err)
		}
	}
	wantIDs(t, s, id)
}

func TestRunEnforcesUntilContextEnds(t *testing.T) {
	s := open(t, Config{MaxAge: time.Hour})
	id := recording.NewID(time.Now())
	put(t, s, id, 0, "x")
	age(t, s, id, time.Now().Add(-2*time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	waittest.Until(t, "the old recording is deleted", func() bool {
		ids, err := s.List(t.Context(), "")
		return err == nil && len(ids) == 0
	})
	cancel()
	<-done
}
