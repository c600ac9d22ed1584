package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// startOnOwnProcessor calls start, which starts a process, on the last processor. It moves this process and those that
// it has started to the other processors until the returned function is called. With one processor it changes nothing.
func startOnOwnProcessor(start func() error) (restore func() error, err error) {
	var all, own, others unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	if all.Count() < 2 {
		return func() error { return nil }, start()
	}
	last := len(all)*strconv.IntSize - 1
	for !all.IsSet(last) {
		last--
	}
	own.Set(last)
	others = all
	others.Clear(last)
	restore = func() error { return setAffinity(&all) }
	if err := setAffinity(&others); err != nil {
		return nil, errors.Join(err, restore())
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // without UnlockOSThread: the thread ends with the goroutine
		err := unix.SchedSetaffinity(0, &own)
		if err == nil {
			err = start() // a process inherits the processors of the thread that starts it
		}
		started <- err
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, restore())
	}
	return restore, nil
}

// setAffinity lets all threads of this process and of those that it has started run on the given processors only. A
// thread may start another one meanwhile, so it repeats until it finds no further one. It ignores threads that have
// ended.
func setAffinity(to *unix.CPUSet) error {
	done := map[int]bool{}
	for found := true; found; {
		found = false
		pids, err := descendants(os.Getpid())
		if err != nil {
			return err
		}
		for _, pid := range pids {
			tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
			if err != nil {
				return err
			}
			for _, task := range tasks {
				tid, err := strconv.Atoi(filepath.Base(task))
				if err != nil {
					return err
				}
				if done[tid] {
					continue
				}
				done[tid], found = true, true
				if err := unix.SchedSetaffinity(tid, to); err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("move process %d: %w", pid, err)
				}
			}
		}
	}
	return nil
}
