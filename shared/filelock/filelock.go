// Package filelock makes processes of one machine take turns, and writes files so that a crash leaves
// the old content or the new one.
//
// Locks are flock(2) locks: they belong to an open file, so they also exclude goroutines of one process,
// and the kernel releases them when a process dies, however it dies.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Mode says who may hold the lock at the same time.
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

// Lock waits for the lock on the file name in root, which it creates with mode 0600, until ctx ends.
// It returns the locked file; closing it releases the lock.
func Lock(ctx context.Context, root *os.Root, name string, mode Mode) (*os.File, error) {
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("lock %s/%s: %w", root.Name(), name, context.Cause(ctx))
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
	// Somebody may have removed the file in between; a lock on a removed file excludes nobody.
	held, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if named, err := root.Lstat(name); err != nil || !os.SameFile(held, named) {
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

// SyncDir makes the names in the directory name of root durable.
func SyncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
