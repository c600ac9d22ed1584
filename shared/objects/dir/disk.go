package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/clusterpass/clusterpass/shared/filelock"
	"github.com/clusterpass/clusterpass/shared/objects"
)

func open(name string, h historyLimits) (*Store, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("open objects in %s: %w", name, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open objects in %s: %w", path, err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open objects in %s: %w", path, err)
	}
	s := &Store{root: root, history: h, gate: make(chan struct{}, 1), state: newState(), changed: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), openWait)
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("open objects in %s: %w", path, err)
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	fi, err := s.root.Stat(".")
	if err != nil {
		return err
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: others may write to %s (mode %04o): chmod 700 %[2]s", objects.ErrForbidden, s.root.Name(),
			fi.Mode().Perm())
	}
	lock, err := filelock.Lock(ctx, s.root, lockName, filelock.Exclusive)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := s.root.Lstat(logName); errors.Is(err, fs.ErrNotExist) {
		b, err := newState().compacted(0)
		if err != nil {
			return err
		}
		if err := s.replaceLog(b); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return s.readNewRecords()
}

// refresh updates state to include every write that ended before the call.
func (s *Store) refresh(ctx context.Context) error {
	if s.isFresh() {
		return ctx.Err()
	}
	return s.withLocks(ctx, func() error { return nil })
}

// isFresh reports whether state includes the whole log. It costs one system call.
func (s *Store) isFresh() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fi, err := s.root.Lstat(logName)
	return err == nil && fi.Size() == s.size && os.SameFile(fi, s.info)
}

// withLocks locks the gate and the lock file, updates state and calls f.
func (s *Store) withLocks(ctx context.Context, f func() error) error {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return ctx.Err()
	}
	lock, err := filelock.Lock(ctx, s.root, lockName, filelock.Exclusive)
	if err != nil {
		return err
	}
	defer lock.Close()
	if !s.isFresh() {
		if err := s.readNewRecords(); err != nil {
			return err
		}
	}
	return f()
}

// readNewRecords applies new records to state, or all records if the log was replaced. If only the end of the log is
// damaged, it truncates that end. A damaged record before an intact one is an error. The caller must have locked the
// lock file and, except within Open, the gate.
func (s *Store) readNewRecords() error {
	named, err := s.root.Lstat(logName)
	if err != nil {
		return err
	}
	file, info, at, st := s.file, s.info, s.size, s.state
	if info == nil || !os.SameFile(named, info) {
		path := filepath.Join(s.root.Name(), logName)
		if !named.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is a symbolic link or a special file (mode %v): put the file itself there",
				objects.ErrForbidden, path, named.Mode())
		}
		if named.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%w: others may write to %s (mode %04o): chmod 600 %[2]s", objects.ErrForbidden, path,
				named.Mode().Perm())
		}
		if file, err = s.root.OpenFile(logName, os.O_RDWR, 0); err != nil {
			return err
		}
		if info, err = file.Stat(); err != nil {
			_ = file.Close()
			return err
		}
		at, st = 0, newState()
	}
	b, err := io.ReadAll(io.NewSectionReader(file, at, 1<<62))
	if err == nil && file == s.file && named.Size() < at {
		err = errors.New("it became shorter: restore it from a backup")
	}
	if err == nil {
		// Other goroutines can read st if it is the current state.
		s.mu.Lock()
		var n int
		n, err = parseRecords(b, st.apply)
		at += int64(n)
		if errors.Is(err, errTorn) {
			err = truncate(file, at)
		}
		if err == nil {
			if s.file != nil && s.file != file {
				_ = s.file.Close()
			}
			s.file, s.info, s.size, s.state = file, info, at, st
		} else if file == s.file {
			s.size = at // the records before the error were applied
		}
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
	if err != nil {
		if file != s.file {
			_ = file.Close()
		}
		return fmt.Errorf("read %s/%s: %w", s.root.Name(), logName, err)
	}
	return nil
}

// append writes a record and applies it to state. The gate and the lock file must be locked, and state must be fresh.
func (s *Store) append(r record) error {
	b, err := appendRecord(nil, r)
	if err != nil {
		return err
	}
	_, err = s.file.WriteAt(b, s.size)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return errors.Join(err, truncate(s.file, s.size))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.apply(r); err != nil {
		return err
	}
	s.size += int64(len(b))
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func truncate(f *os.File, size int64) error {
	return errors.Join(f.Truncate(size), f.Sync())
}

// compactIfLong compacts the log if the log exceeds a limit of s.history. It ignores errors, because the write before
// it has succeeded, and the next write tries again. The gate and the lock file must be locked.
func (s *Store) compactIfLong() {
	st, h := s.state, s.history
	if len(st.changes) <= h.maxChanges && st.bytes <= h.maxBytes {
		return
	}
	to, kept := st.rev, 0
	for to > st.first && int(st.rev-to) < h.keepChanges {
		size := len(st.changes[to-st.first-1].event.Object.Value)
		if kept+size > h.keepBytes {
			break
		}
		kept += size
		to--
	}
	_ = s.compact(to)
}

// Compact removes the events up to and including revision rev. A Watch from an earlier revision then returns
// ErrCompacted.
func (s *Store) Compact(ctx context.Context, rev uint64) error {
	err := s.withLocks(ctx, func() error {
		if rev > s.state.rev {
			return fmt.Errorf("%w: revision %d does not exist yet: the store is at %d", objects.ErrInvalid, rev, s.state.rev)
		}
		if rev <= s.state.first {
			return nil
		}
		return s.compact(rev)
	})
	if err != nil {
		return fail("compact", "the log", err)
	}
	return nil
}

// compact replaces the log by one without the events up to and including revision to. The gate and the lock file must
// be locked.
func (s *Store) compact(to uint64) error {
	b, err := s.state.compacted(to)
	if err != nil {
		return err
	}
	if err := s.replaceLog(b); err != nil {
		return err
	}
	return s.readNewRecords()
}

func (s *Store) replaceLog(b []byte) error {
	// The fixed name overwrites the file of a writer that died.
	f, err := s.root.OpenFile(tmpName, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := s.root.Rename(tmpName, logName); err != nil {
		return err
	}
	return filelock.SyncDir(s.root, ".")
}

// fail wraps err with one of the errors of package objects, unless it is context.Canceled.
func fail(op, key string, err error) error {
	for _, reason := range []error{
		objects.ErrNotFound, objects.ErrExists, objects.ErrConflict, objects.ErrCompacted,
		objects.ErrForbidden, objects.ErrUnavailable, objects.ErrInvalid, context.Canceled,
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%s %s: %w", op, key, err)
		}
	}
	reason := objects.ErrUnavailable
	if errors.Is(err, fs.ErrPermission) {
		reason = objects.ErrForbidden
	}
	return fmt.Errorf("%s %s: %w: %w", op, key, reason, err)
}
