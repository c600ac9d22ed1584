// Package ownership ensures that test clusters leave no process and no file behind, however they end. It works on Linux
// only. Each run of clusters has one run directory and one keeper process.
//
// Invariants:
//   - The keeper locks its run directory (flock). The system frees the lock when the keeper dies, so a directory that
//     can be locked is abandoned.
//   - The keeper's parent, a guard, only waits (see [Guard]). If the keeper is killed, its descendants become the
//     guard's children, and the guard kills them. If the guard is killed, the keeper gets a signal and ends.
//   - Processes that the keeper starts die with it (Pdeathsig).
//   - If both are killed, the next run kills processes with an abandoned run's mark and removes its directory.
package ownership

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Root returns the directory with the run directories of this user. It exists only during runs.
func Root() string {
	return filepath.Join(os.TempDir(), "clusterpass-clusters-"+strconv.Itoa(os.Getuid()))
}

// ErrRunning means that a run of the same name is active.
var ErrRunning = errors.New("clusters of this name run already")

// A RunDir is a locked run directory. Its process must keep it locked until its children are gone.
type RunDir struct {
	Path string
	lock *os.File
}

// Create sweeps and makes the run directory called name. It fails with ErrRunning while a run of that name is active.
func Create(name string) (*RunDir, error) {
	root, err := lockRoot()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := sweep(); err != nil {
		return nil, err
	}

	path := filepath.Join(Root(), name)
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("%w: %s", ErrRunning, name)
		}
		return nil, fmt.Errorf("make the run directory: %w", err)
	}
	lock, err := tryLock(path)
	if err != nil {
		return nil, err
	}
	return &RunDir{Path: path, lock: lock}, nil
}

// Remove deletes and unlocks the directory.
func (d *RunDir) Remove() error {
	root, err := lockRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	err = os.RemoveAll(d.Path)
	d.lock.Close()
	removeRoot()
	return err
}

// Sweep kills and removes the remains of dead runs.
func Sweep() error {
	root, err := lockRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	err = sweep()
	removeRoot()
	return err
}

// Runs lists the run directories that exist.
func Runs() ([]string, error) {
	entries, err := os.ReadDir(Root())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	var paths []string
	for _, e := range entries {
		paths = append(paths, filepath.Join(Root(), e.Name()))
	}
	return paths, nil
}

// sweep needs the root's lock, so that no directory is between its creation and its lock.
func sweep() error {
	paths, err := Runs()
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		lock, err := tryLock(path)
		if err != nil {
			errs = append(errs, err)
		}
		if lock == nil {
			continue
		}
		errs = append(errs, KillMarked(path), os.RemoveAll(path))
		lock.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep what dead runs left: %w", err)
	}
	return nil
}

// tryLock locks a directory. It returns nil without an error if another process has locked it.
func tryLock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a run directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// lockRoot creates and locks the root. It must belong to this user, since every user can write to the temporary
// directory.
func lockRoot() (*os.File, error) {
	for {
		if err := os.Mkdir(Root(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make the directory of runs: %w", err)
		}
		f, err := os.OpenFile(Root(), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another run ended and removed it
		}
		if err != nil {
			return nil, fmt.Errorf("open the directory of runs: %w", err)
		}
		if err := flockWait(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock the directory of runs: %w", err)
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("read the directory of runs: %w", err)
		}
		if owner := mine.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Getuid() || mine.Mode().Perm() != 0o700 {
			f.Close()
			return nil, fmt.Errorf("%s belongs to another user or is accessible to others; remove it, or set TMPDIR", Root())
		}
		if now, err := os.Lstat(Root()); err == nil && os.SameFile(mine, now) {
			return f, nil
		}
		f.Close() // it was removed while this waited
	}
}

func flockWait(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// removeRoot removes an empty root. It needs the root's lock.
func removeRoot() { _ = os.Remove(Root()) }
