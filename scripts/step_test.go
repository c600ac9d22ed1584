// Package scripts tests the shell scripts that make calls.
package scripts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 5 * time.Minute

// TestMain lets the scripts get the signals of a terminal. Programs started by nohup ignore some of them.
func TestMain(m *testing.M) {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// step returns a scripts/step in a process group of its own, as make's. It prints the elapsed time after an hour only,
// so that the output does not depend on how busy the machine is.
func step(t *testing.T, command ...string) *exec.Cmd {
	t.Helper()
	cmd := script(t, "./step", append([]string{"build it", "Go and patience"}, command...)...)
	cmd.Env = append(os.Environ(), "STEP_INTERVAL=3600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = patience
	return cmd
}

// A user must learn from a failed step what the machine lacks, and make must see the failure.
func TestStepReportsTheEndOfItsCommand(t *testing.T) {
	const elapsed = "N s"
	for name, tt := range map[string]struct {
		command    []string
		wantCode   int
		wantStdout string
		wantStderr []string
	}{
		"success": {
			command:    []string{"sh", "-c", "echo out; echo err >&2"},
			wantStdout: "out\n",
			wantStderr: []string{"==> build it", "err", "==> build it: done in " + elapsed},
		},
		"failure": {
			command:  []string{"sh", "-c", "exit 3"},
			wantCode: 3,
			wantStderr: []string{
				"==> build it", "==> build it: failed after " + elapsed + " with exit code 3; it needs Go and patience",
			},
		},
		"killed by a signal": {
			command:  []string{"sh", "-c", "kill -KILL $$"},
			wantCode: 128 + int(syscall.SIGKILL),
			wantStderr: []string{
				"==> build it", "==> build it: failed after " + elapsed + " with exit code 137; it needs Go and patience",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := step(t, tt.command...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			wantExitCode(t, cmd.Run(), tt.wantCode)
			if stdout.String() != tt.wantStdout {
				t.Errorf("standard output %q, want %q", &stdout, tt.wantStdout)
			}
			if got := withoutTimes(stderr.String()); got != strings.Join(tt.wantStderr, "\n")+"\n" {
				t.Errorf("standard error %q, want the lines %q", got, tt.wantStderr)
			}
		})
	}
}

func TestStepWithoutCommandExplainsItself(t *testing.T) {
	out, err := script(t, "./step", "build it").CombinedOutput()
	wantExitCode(t, err, 2)
	if !strings.Contains(string(out), "usage: scripts/step NAME NEEDS COMMAND") {
		t.Errorf("got %q, want the usage", out)
	}
}

// A program that is built by a step, or shown by one, may print bytes that are no text, and no line at all.
func TestStepPassesInputAndOutputUnchanged(t *testing.T) {
	every := make([]byte, 0, 256*256)
	for i := range cap(every) {
		every = append(every, byte(i))
	}
	cmd := step(t, "cat")
	cmd.Stdin = bytes.NewReader(every)
	if out, err := cmd.Output(); err != nil || !bytes.Equal(out, every) {
		t.Errorf("%d bytes came back as %d: %v", len(every), len(out), err)
	}
}

// Arguments with spaces, quotes and dollars must reach the command as make's shell has parsed them.
func TestStepPassesArgumentsUnchanged(t *testing.T) {
	args := []string{"a b", "", `"$HOME"`, "*", "-n", "é"}
	out, err := step(t, append([]string{"printf", `%s\n`}, args...)...).Output()
	if want := strings.Join(args, "\n") + "\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}

// Without these lines a compiler that runs for minutes looks like one that hangs.
func TestStepPrintsTheTimeOfASilentCommand(t *testing.T) {
	cmd := step(t, "cat")
	cmd.Env = append(cmd.Env, "STEP_INTERVAL=1")
	stdin, stderr := begin(t, cmd)
	want := []string{"==> build it", "==> build it: running for N s", "==> build it: running for N s"}
	for _, line := range want {
		if got := stderr.next(t); got != line {
			t.Fatalf("got %q, want %q", got, line)
		}
	}
	stdin.Close()
	for got := ""; got != "==> build it: done in N s"; {
		if got = stderr.next(t); !strings.HasPrefix(got, "==> build it: ") {
			t.Fatalf("got %q at the end", got)
		}
	}
	wantExitCode(t, cmd.Wait(), 0)
}

// A command that prints to a file or a terminal needs no further signs of life.
func TestStepIsSilentWhileItsCommandPrints(t *testing.T) {
	const (
		pauses = 6 * time.Second // the sum of the command's pauses
		stall  = 2 * time.Second // a longer delay could make the command silent for an interval
	)
	want := "==> build it\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n==> build it: done in N s\n"
	for deadline := time.Now().Add(patience); ; {
		file, err := os.Create(t.TempDir() + "/output")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		cmd := step(t, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 0.5; done")
		cmd.Env = append(cmd.Env, "STEP_INTERVAL=4")
		cmd.Stdout, cmd.Stderr = file, file
		began := time.Now()
		wantExitCode(t, cmd.Run(), 0)
		lasted := time.Since(began)
		out, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		got := withoutTimes(string(out))
		if got != want && lasted > pauses+stall && time.Now().Before(deadline) {
			continue // the machine was too busy to let the command print
		}
		if got != want {
			t.Errorf("got %q after %s, want %q", got, lasted, want)
		}
		return
	}
}

// ctrl-C signals the process group. A CI that cancels a job signals step alone, and the command must end, too.
func TestStepEndsWithItsCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		signal  syscall.Signal
		toGroup bool
	}{
		"ctrl-C":  {syscall.SIGINT, true},
		"TERM":    {syscall.SIGTERM, false},
		"hang-up": {syscall.SIGHUP, false},
		"KILL":    {syscall.SIGKILL, false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, stderr := started(t, "sh", "-c", "echo ready >&2; exec cat")
			stderr.skipTo(t, "ready")
			to := cmd.Process.Pid
			if tt.toGroup {
				to = -to
			}
			if err := syscall.Kill(to, tt.signal); err != nil {
				t.Fatal(err)
			}
			last := ""
			for line, ok := stderr.line(t); ok; line, ok = stderr.line(t) { // until no process can write any more
				last = line
			}
			if last != "==> build it: stopped after N s" {
				t.Errorf("the last line is %q", last)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Fatalf("the step succeeded although it was stopped: %v", err)
			}
			status := exit.Sys().(syscall.WaitStatus)
			if status.Signal() != tt.signal && status.ExitStatus() != 128+int(tt.signal) {
				t.Errorf("got %v, want exit code 128 + %d or the signal", exit, tt.signal)
			}
		})
	}
}

// A command may need time to end after ctrl-C, and then step must neither end before it nor hide its exit code.
func TestStepWaitsForACommandThatCleansUp(t *testing.T) {
	cmd, stdin, stderr := started(t, "sh", "-c",
		`trap 'echo cleaning >&2; read line; echo cleaned >&2; exit 7' INT; echo ready >&2; while true; do sleep 0.1; done`)
	stderr.skipTo(t, "ready")
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	stderr.skipTo(t, "cleaning")
	stdin.Close()
	stderr.skipTo(t, "cleaned")
	stderr.skipTo(t, "==> build it: stopped after N s")
	wantExitCode(t, cmd.Wait(), 7)
}

func started(t *testing.T, command ...string) (*exec.Cmd, io.Closer, *lines) {
	t.Helper()
	cmd := step(t, command...)
	stdin, stderr := begin(t, cmd)
	return cmd, stdin, stderr
}

func begin(t *testing.T, cmd *exec.Cmd) (io.Closer, *lines) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // if the test has failed
	l := &lines{c: make(chan string), deadline: time.After(patience)}
	go func() {
		defer close(l.c)
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			l.c <- withoutTimes(sc.Text())
		}
	}()
	return stdin, l
}

type lines struct {
	c        chan string
	deadline <-chan time.Time // of all lines, since a step that does not end may print more of them
}

func (l *lines) line(t *testing.T) (string, bool) {
	t.Helper()
	select {
	case line, ok := <-l.c:
		return line, ok
	case <-l.deadline:
		t.Fatal("the step does not end")
		return "", false
	}
}

func (l *lines) next(t *testing.T) string {
	t.Helper()
	line, ok := l.line(t)
	if !ok {
		t.Fatal("the output ended")
	}
	return line
}

func (l *lines) skipTo(t *testing.T, want string) {
	t.Helper()
	for l.next(t) != want {
	}
}

func withoutTimes(s string) string {
	words := strings.Split(s, " ")
	for i := 1; i < len(words); i++ {
		if _, err := strconv.Atoi(words[i-1]); err == nil && strings.TrimSpace(words[i]) == "s" {
			words[i-1] = "N"
		}
	}
	return strings.Join(words, " ")
}

func wantExitCode(t *testing.T, err error, want int) {
	t.Helper()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("exit code %d, want %d", got, want)
	}
}
