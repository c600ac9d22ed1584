package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// rss returns a process's current resident memory in KB.
func rss(pid int) (int, error) { return memoryOf(pid, "VmRSS:") }

// peak returns the maximum of a process's resident memory since resetPeak, in KB.
func peak(pid int) (int, error) { return memoryOf(pid, "VmHWM:") }

func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600)
}

func memoryOf(pid int, field string) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if f := strings.Fields(string(line)); len(f) > 1 && f[0] == field {
			return strconv.Atoi(f[1])
		}
	}
	return 0, errors.New("no " + field)
}

const ticksPerSecond = 100 // USER_HZ, on every Linux that Go runs on

// cpuOver returns the share of a core that a process uses during d.
func cpuOver(ctx context.Context, pid int, d time.Duration) (float64, error) {
	before, err := cpuTicks(pid)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(d):
	}
	after, err := cpuTicks(pid)

	return float64(after-before) / ticksPerSecond / d.Seconds(), err
}

func cpuTicks(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may contain spaces
	f := strings.Fields(rest)
	user, err := strconv.Atoi(f[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(f[12])
	return user + system, err
}

// cpuTime returns the CPU time of a process's threads in nanoseconds, where cpuTicks is too coarse.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		running, _, _ := strings.Cut(string(stat), " ")
		n, err := strconv.ParseInt(running, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// cpuUsage is the CPU time of a process, and that of the whole machine in ticks.
type cpuUsage struct {
	process   time.Duration
	busy, all int
}

func readCPUUsage(pid int) (u cpuUsage, err error) {
	if u.process, err = cpuTime(pid); err != nil {
		return u, err
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	const idle, waiting, guest = 4, 5, 9 // columns; that of user contains guests
	for i, field := range strings.Fields(line) {
		n, err := strconv.Atoi(field)
		switch {
		case i == 0 || i >= guest:
			continue
		case err != nil:
			return u, fmt.Errorf("/proc/stat: %w", err)
		}
		u.all += n
		if i != idle && i != waiting {
			u.busy += n
		}
	}
	return u, nil
}

// samples are the CPU time and the memory of a process, one of each for each interval.
type samples struct {
	pid      int
	interval time.Duration
	start    time.Time // beginning of the current interval
	ticks    int       // at start
	cpu      []int     // % of a core in each interval
	memory   []int     // RssAnon at the end of each interval, in MiB
}

func startSamples(pid int, interval time.Duration) (*samples, error) {
	ticks, err := cpuTicks(pid)
	return &samples{pid: pid, interval: interval, start: time.Now(), ticks: ticks}, err
}

// sample adds a sample if the interval is over.
func (s *samples) sample() error {
	if time.Since(s.start) < s.interval {
		return nil
	}
	return s.add()
}

// last adds a sample of the rest, unless it is short.
func (s *samples) last() error {
	if time.Since(s.start) < s.interval/2 {
		return nil
	}
	return s.add()
}

func (s *samples) add() error {
	elapsed := time.Since(s.start)
	ticks, err := cpuTicks(s.pid)
	if err != nil {
		return err
	}
	memory, err := memoryOf(s.pid, "RssAnon:")
	if err != nil {
		return err
	}
	s.cpu = append(s.cpu, int(100*float64(ticks-s.ticks)/ticksPerSecond/elapsed.Seconds()+0.5))
	s.memory = append(s.memory, memory>>10)
	s.start, s.ticks = s.start.Add(elapsed), ticks
	return nil
}

// interrupt ends a process and waits for its end.
func interrupt(process *exec.Cmd) {
	_ = process.Process.Signal(os.Interrupt) // it may have ended
	_ = process.Wait()                       // it was interrupted
}

func descendants(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // a process that ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // the name may contain spaces
		parent, parentErr := strconv.Atoi(strings.Fields(rest)[1])
		child, childErr := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err := errors.Join(parentErr, childErr); err != nil {
			return nil, err
		}
		children[parent] = append(children[parent], child)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}
