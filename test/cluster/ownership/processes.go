package ownership

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const mark = "CLUSTERPASS_CLUSTERS_RUN"

// Mark returns the environment entry of processes of the run in dir.
func Mark(dir string) string { return mark + "=" + dir }

const patience = time.Minute

// Adopt makes this process the parent of its descendants' orphans.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// KillDescendants kills all descendants of this process and waits for them. No other code may wait for any of them.
func KillDescendants() error {
	return killAll("descendants", func() ([]int, error) {
		for { // reap, or the dead would be counted
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		return descendants(os.Getpid(), nil)
	})
}

// KillOrphans kills and reaps remains of dead components: children that this process did not start, with their
// descendants. started reports whether this process started a child.
func KillOrphans(started func(pid int) bool) error {
	return killAll("orphans", func() ([]int, error) {
		found, err := descendants(os.Getpid(), started)
		for _, pid := range found {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // ECHILD: not ours yet
		}
		return found, err
	})
}

// KillMarked kills the processes with the mark of the run in dir and waits until they are gone.
func KillMarked(dir string) error {
	return killAll("marked processes", func() ([]int, error) { return Marked(dir) })
}

func killAll(what string, find func() ([]int, error)) error {
	deadline := time.Now().Add(patience)
	// killed maps processes to their starts. An ending process has no environment, and may still have files and ports.
	killed := map[int]string{}
	for {
		pids, err := find()
		if err != nil {
			return fmt.Errorf("find %s: %w", what, err)
		}
		left := slices.Clone(pids)
		for pid, start := range killed {
			if start != "" && startOf(pid) == start && !slices.Contains(pids, pid) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s %v are still there %s after SIGKILL", what, left, patience)
		}
		for _, pid := range pids {
			killed[pid] = startOf(pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Marked lists the processes with dir's mark. Other users' processes cannot be read.
func Marked(dir string) ([]int, error) {
	var found []int
	entry := append([]byte{0}, Mark(dir)+"\x00"...)
	err := eachProcess(func(pid int) {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), entry) {
			found = append(found, pid)
		}
	})
	return found, err
}

func descendants(root int, skip func(pid int) bool) ([]int, error) {
	children := map[int][]int{}
	err := eachProcess(func(pid int) {
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	})
	if err != nil {
		return nil, err
	}
	var found []int
	for _, child := range children[root] {
		if skip == nil || !skip(child) {
			found = append(found, child)
		}
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found, nil
}

func eachProcess(do func(pid int)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			do(pid)
		}
	}
	return nil
}

func parentOf(pid int) (int, bool) {
	fields := stat(pid)
	if fields == nil {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// startOf returns when a process started, in ticks since the start of the machine, or "" if it has ended.
func startOf(pid int) string {
	fields := stat(pid)
	if fields == nil || fields[0] == "X" || fields[0] == "Z" && fields[17] <= "1" { // a thread may outlive the first one
		return ""
	}
	return fields[19]
}

// stat returns the fields of a process's stat file that follow its name, beginning with the state, or nil.
func stat(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	// The name, in parentheses, may contain anything, so parse the text after the last parenthesis.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return nil
	}
	return fields
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
