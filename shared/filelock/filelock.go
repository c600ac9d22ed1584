// Package filelock locks files against other processes, and makes changes of directories durable. A lock also excludes
// goroutines of this process, and the kernel releases it when the process ends. Unix uses flock(2), and Windows
// LockFileEx.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Mode is Shared or Exclusive. Several processes may have a shared lock at the same time.
type Mode int

// The modes of a lock.
const (
	Shared Mode = iota
	Exclusive
)

// errLocked means that another process has the lock, or that the file was removed.
var errLocked = errors.New("the file is locked")

const (
	firstWait = 200 * time.Microsecond
	maxWait   = 5 * time.Millisecond
)

// Lock blocks until it has locked the file name in root, or ctx ends. It creates the file with mode 0600. Closing the
// returned file releases the lock.
func Lock(ctx context.Context, root *os.Root, name string, mode Mode) (*os.File, error) {
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		if err := ctx.Err(); err != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, err) {
				err = fmt.Errorf("%w: %w", err, cause)
			}
			return nil, fmt.Errorf("lock %s/%s: %w", root.Name(), name, err)
		}
		f, err := try(root, name, mode)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, errLocked) {
			return nil, fmt.Errorf("lock %s/%s: %w", root.Name(), name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func try(root *os.Root, name string, mode Mode) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, mode); err != nil {
		_ = f.Close()
		return nil, err
	}
	// Another process may have removed the file meanwhile. A lock on a removed file excludes no other process.
	locked, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if named, err := root.Lstat(name); err != nil || !os.SameFile(locked, named) {
		_ = f.Close()
		return nil, errLocked
	}
	return f, nil
}
