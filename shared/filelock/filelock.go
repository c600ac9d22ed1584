// Package filelock locks files against other processes, and makes changes of directories durable. It uses flock(2): a
// lock also excludes goroutines of this process, and the kernel releases it when the process ends.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Mode is Shared or Exclusive. Several processes may have a shared lock at the same time.
type Mode int

// The modes of a lock.
const (
	Shared    Mode = syscall.LOCK_SH
	Exclusive Mode = syscall.LOCK_EX
)

const (
	firstWait = 200 * time.Microsecond
	maxWait   = 5 * time.Millisecond
)

// Lock blocks until it has locked the file name in root, or ctx ends. It creates the file with mode 0600. Closing the
// returned file releases the lock.
func Lock(ctx context.Context, root *os.Root, name string, mode Mode) (*os.File, error) {
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("lock %s/%s: %w: %w", root.Name(), name, err, context.Cause(ctx))
		}
		f, err := try(root, name, mode)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
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
		return nil, syscall.EWOULDBLOCK
	}
	return f, nil
}

func flock(f *os.File, mode Mode) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		for {
			lockErr = syscall.Flock(int(fd), int(mode)|syscall.LOCK_NB)
			if !errors.Is(lockErr, syscall.EINTR) {
				return
			}
		}
	}); err != nil {
		return err
	}
	return lockErr
}

// SyncDir makes created, renamed and removed files of the directory name in root durable.
func SyncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
