package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// onOwnProcessor calls start, which starts a process, on the last processor. It moves this process and those that it
// has started to the other processors until the returned function is called. With one processor it changes nothing.
func onOwnProcessor(ctx context.Context, start func() error) (restore func() error, err error) {
	last := runtime.NumCPU() - 1
	if last == 0 {
		return func() error { return nil }, start()
	}
	var own, others, all unix.CPUSet
	own.Set(last)
	for cpu := range last {
		others.Set(cpu)
	}
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	pids, err := descendants(os.Getpid())
	if err != nil {
		return nil, err
	}
	restore = func() error { return setAffinity(pids, &all) }
	if err := setAffinity(pids, &others); err != nil {
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
	select {
	case err = <-started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, restore())
	}
	return restore, nil
}

// setAffinity lets all threads of the processes run on the given processors only. A thread may start another one
// meanwhile, so that it repeats until it finds no further one. It ignores threads that have ended.
func setAffinity(pids []int, to *unix.CPUSet) error {
	done := map[int]bool{}
	for found := true; found; {
		found = false
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
