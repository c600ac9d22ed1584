//go:build unix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// flock locks f, or returns errLocked.
func flock(f *os.File, mode Mode) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	how := syscall.LOCK_SH
	if mode == Exclusive {
		how = syscall.LOCK_EX
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		for {
			lockErr = syscall.Flock(int(fd), how|syscall.LOCK_NB)
			if !errors.Is(lockErr, syscall.EINTR) {
				return
			}
		}
	}); err != nil {
		return err
	}
	if errors.Is(lockErr, syscall.EWOULDBLOCK) {
		return errLocked
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
