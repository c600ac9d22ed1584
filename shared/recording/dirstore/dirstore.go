// Package dirstore stores recordings in a directory. The part 3 of the recording ID is the file ID/00000003.cast.
//
//   - Only the user of the process can read directories. Open and Put remove the access of the directory's group, which
//     kubelet adds to volumes, and refuse a directory that is open to others.
//   - A file appears complete, and survives a crash of the machine once Put has returned.
//   - Several processes may use one directory.
//   - Recordings are deleted whole, the one that was open or written first, first: Config.MaxAge after that, and while
//     the directory exceeds Config.MaxSize. Those without a first part, which no session has, go before all others. The
//     recordings that this process has open stay: see Keep. Those of other processes count as written, each minute.
//   - The recordings that a process has open have at most a half of Config.MaxSize. Beyond it, the largest gets no more
//     parts, so that no session can fill the disk.
package dirstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/filelock"
	"github.com/clusterpass/clusterpass/shared/recording"
)

// Config configures a Store.
type Config struct {
	Path    string        // is created, with mode 0700
	MaxAge  time.Duration // the maximum age of the last part of a recording; 0 means no limit
	MaxSize int64         // the maximum size of all recordings on the disk in bytes; 0 means no limit
	Log     *slog.Logger  // names deleted recordings; nil discards
	Now     func() time.Time
}

// Store implements recording.Store.
type Store struct {
	cfg  Config
	root *os.Root

	written    atomic.Int64  // bytes since the last check of the limits
	enforceNow chan struct{} // has an element if Run must check the limits

	mu       sync.Mutex
	kept     map[string]*keptRecording // by id
	keptSize int64                     // on the disk, of those that are not full
}

var (
	_ recording.Store  = (*Store)(nil)
	_ recording.Keeper = (*Store)(nil)
)

const (
	tmpPrefix = ".tmp-"
	// sizeChecks is how often the limits are checked while MaxSize bytes are written. Between two checks, each process
	// may exceed MaxSize by that share of it.
	sizeChecks = 20
	// RunInterval is the pause between two checks of Run.
	RunInterval = time.Minute
	maxTmpAge   = time.Hour // the age at which a file is left of a Put that was killed
)

// Open opens the directory, and creates it. The caller closes the Store.
func Open(cfg Config) (*Store, error) {
	if cfg.MaxAge < 0 || cfg.MaxSize < 0 || !filepath.IsAbs(cfg.Path) {
		return nil, fmt.Errorf("open the directory of recordings %q: want an absolute path, and no negative limit", cfg.Path)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(cfg.Path, 0o700); err != nil {
		return nil, fmt.Errorf("open the directory of recordings: %w", err)
	}
	root, err := os.OpenRoot(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("open the directory of recordings: %w", err)
	}
	s := &Store{cfg: cfg, root: root, enforceNow: make(chan struct{}, 1), kept: map[string]*keptRecording{}}
	if err := s.makePrivate("."); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("open the directory of recordings: %w", err)
	}
	return s, nil
}

// OpenExisting opens a directory for readers, which may be a copy with any mode. Put must not be called.
func OpenExisting(path string) (*Store, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory of recordings: %w", err)
	}
	return &Store{cfg: Config{Path: path, Log: slog.New(slog.DiscardHandler), Now: time.Now}, root: root}, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.root.Close() }

// Run deletes recordings beyond the limits until ctx ends. Put never does: a slow deletion must not fail a session.
// Concurrent calls are not safe.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(RunInterval)
	defer tick.Stop()
	for {
		s.touchKept()
		if err := s.Enforce(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("recordings beyond the limits cannot be deleted", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.enforceNow:
		}
	}
}

// Put implements recording.Store. Part 0 must come first.
func (s *Store) Put(ctx context.Context, id string, number int, part []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name, err := nameOf(id, number)
	if err != nil {
		return err
	}
	if err := s.grow(id, sizeOnDisk(int64(len(part)))); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(s.cfg.Path, name), err)
	}
	if number == 0 {
		err = s.makeDir(id)
	} else {
		err = s.checkAbsent(id, name)
	}
	if err == nil {
		if err = s.write(id, name, part); err != nil && number == 0 {
			_ = s.root.Remove(id) // stays if it has the part
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(s.cfg.Path, name), err)
	}
	if s.cfg.MaxSize > 0 && s.written.Add(sizeOnDisk(int64(len(part)))) >= s.cfg.MaxSize/sizeChecks {
		select {
		case s.enforceNow <- struct{}{}:
		default:
		}
	}
	return nil
}

func (s *Store) makeDir(id string) error {
	err := s.root.Mkdir(id, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return recording.ErrExists
	} else if err != nil {
		return err
	}
	return filelock.SyncDir(s.root, ".")
}

func (s *Store) checkAbsent(id, name string) error {
	if err := s.makePrivate(id); err != nil {
		return err
	}
	if _, err := s.root.Lstat(name); err == nil {
		return recording.ErrExists
	}
	return nil
}

// makePrivate removes the access of a directory's group. It refuses a directory that all users can access, or whose
// mode the process may not change, which then has another owner.
func (s *Store) makePrivate(dir string) error {
	const group, others = 0o070, 0o007
	fi, err := s.root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return recording.ErrNotFound
	case err != nil:
		return err
	case !fi.IsDir():
		return fmt.Errorf("%s is no directory", filepath.Join(s.cfg.Path, dir))
	case fi.Mode()&(group|others) == 0:
		return nil
	case fi.Mode()&others == 0 && s.tryChmod(dir, fi.Mode()&^group):
		return nil
	}
	return fmt.Errorf("%s is open to others (mode %04o): chmod 700 %[1]s, or use a new directory in it",
		filepath.Join(s.cfg.Path, dir), fi.Mode().Perm())
}

// tryChmod reports whether the directory has the mode afterwards. Some network file systems ignore the change.
func (s *Store) tryChmod(dir string, mode fs.FileMode) bool {
	d, err := s.root.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	if err := d.Chmod(mode); err != nil {
		return false
	}
	fi, err := d.Stat()
	return err == nil && fi.Mode().Perm() == mode.Perm()
}

// write writes and syncs a temporary file, and renames it to name.
func (s *Store) write(dir, name string, part []byte) error {
	tmp := path.Join(dir, tmpPrefix+rand.Text())
	f, err := s.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = s.root.Remove(tmp) }() // missing after the rename
	_, err = f.Write(part)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := s.root.Rename(tmp, name); err != nil {
		return err
	}
	return filelock.SyncDir(s.root, dir)
}

// Get implements recording.Store.
func (s *Store) Get(ctx context.Context, id string, number int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name, err := nameOf(id, number)
	if err != nil {
		return nil, err
	}
	data, err := s.read(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(s.cfg.Path, name), err)
	}
	return data, nil
}

func (s *Store) read(name string) ([]byte, error) {
	fi, err := s.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, recording.ErrNotFound
	} else if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, recording.MaxPart+1))
	if len(data) > recording.MaxPart {
		err = fmt.Errorf("it has more than %d bytes", recording.MaxPart)
	}
	return data, err
}

// Parts implements recording.Store.
func (s *Store) Parts(ctx context.Context, id string) ([]recording.Part, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !recording.ValidID(id) {
		return nil, recording.InvalidID(id)
	}
	parts, err := s.parts(id)
	if err == nil && len(parts) == 0 {
		err = recording.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(s.cfg.Path, id), err)
	}
	return parts, nil
}

func (s *Store) parts(id string) ([]recording.Part, error) {
	entries, err := s.readDir(id)
	if err != nil {
		return nil, err
	}
	var parts []recording.Part
	for _, e := range entries {
		number, ok := recording.PartNumber(e.Name())
		if !ok {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // the recording is being deleted
		} else if err != nil {
			return nil, err
		}
		parts = append(parts, recording.Part{Number: number, Size: fi.Size(), Stored: fi.ModTime()})
	}
	slices.SortFunc(parts, func(a, b recording.Part) int { return a.Number - b.Number })
	return parts, nil
}

// List implements recording.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := s.readDir(".")
	if err != nil {
		return nil, fmt.Errorf("list recordings in %s: %w", s.cfg.Path, err)
	}
	var ids []string
	for _, e := range entries {
		if id := e.Name(); e.IsDir() && recording.ValidID(id) && strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Days implements recording.Store.
func (s *Store) Days(ctx context.Context, prefix string) ([]string, error) {
	ids, err := s.List(ctx, prefix)
	return recording.DaysOf(ids), err
}

func (s *Store) readDir(name string) ([]fs.DirEntry, error) {
	d, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, recording.ErrNotFound
	} else if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

func nameOf(id string, number int) (string, error) {
	if !recording.ValidID(id) || number < 0 {
		return "", recording.InvalidID(id)
	}
	return path.Join(id, recording.PartName(number)), nil
}
