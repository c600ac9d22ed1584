package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// flock locks f, or returns errLocked.
func flock(f *os.File, mode Mode) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if mode == Exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		lockErr = windows.LockFileEx(windows.Handle(fd), flags, 0, 1, 0, &windows.Overlapped{})
	}); err != nil {
		return err
	}
	if errors.Is(lockErr, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return lockErr
}

// SyncDir does nothing: Windows cannot sync directories.
func SyncDir(*os.Root, string) error { return nil }
