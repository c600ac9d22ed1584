package shim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// holderEnv makes the test binary a substitute for the kubelet: it starts a container and then waits to be killed.
const holderEnv = "SHIM_TEST_HOLDER"

func TestMain(m *testing.M) {
	if Invoked() {
		os.Exit(Main())
	}
	if script := os.Getenv(holderEnv); script != "" {
		startAndBlock(script)
	}
	leaktest.Main(m)
}

func startAndBlock(script string) {
	s, err := Start("held", "/", []string{"PATH=" + os.Getenv("PATH")})
	if err == nil {
		_, err = s.Run(Command{Argv: []string{"sh", "-c", script}}, os.Stdin, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {}
}

func start(t *testing.T, env ...string) *Shim {
	t.Helper()
	// The race detector would make every shim sleep for a second at its end.
	s, err := Start(t.Name(), t.TempDir(), append(env, "PATH="+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// launch starts a command and returns its stdout. The caller waits for the process.
func launch(t *testing.T, s *Shim, c Command) (*Process, *bufio.Reader) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	p, err := s.Run(c, null, w, w)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return p, bufio.NewReader(r)
}

func sh(script string) Command { return Command{Argv: []string{"sh", "-c", script}} }

func exitCode(t *testing.T, p *Process) int {
	t.Helper()
	select {
	case <-p.Done():
		return p.ExitCode()
	case <-time.After(2 * time.Minute):
		t.Fatal("the process did not end")
		return 0
	}
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		command  Command
		wantOut  string
		wantCode int
	}{
		"success":     {command: sh("echo hello"), wantOut: "hello\n"},
		"exit code":   {command: sh("exit 42"), wantCode: 42},
		"by signal":   {command: sh("kill -TERM $$"), wantCode: 143},
		"environment": {command: sh("echo $A $B"), wantOut: "a\n"},
		"more of it":  {command: Command{Argv: []string{"sh", "-c", "echo $A $B"}, Env: []string{"B=b"}}, wantOut: "a b\n"},
		"arguments":   {command: Command{Argv: []string{"printf", "%s|", "a b", "", "*"}}, wantOut: "a b||*|"},
		"directory":   {command: Command{Argv: []string{"pwd"}, Dir: "/"}, wantOut: "/\n"},
		"long request": {
			command: Command{Argv: []string{"sh", "-c", "echo ${#1}", "sh", strings.Repeat("x", 120_000)}}, wantOut: "120000\n",
		},
	}
	s := start(t, "A=a")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, out := launch(t, s, test.command)
			got, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.wantOut {
				t.Errorf("output %q, want %q", got, test.wantOut)
			}
			if code := exitCode(t, p); code != test.wantCode {
				t.Errorf("exit code %d, want %d", code, test.wantCode)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	tests := map[string]struct {
		command Command
		want    string
	}{
		"unknown program": {
			Command{Argv: []string{"no-such-program"}}, `exec: "no-such-program": executable file not found in $PATH`,
		},
		"unknown path":      {Command{Argv: []string{"/no/such/program"}}, "no such file or directory"},
		"unknown directory": {Command{Argv: []string{"true"}, Dir: "/no/such/directory"}, "no such file or directory"},
	}
	s := start(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := s.Run(test.command, os.Stdin, os.Stdout, os.Stderr)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestSignal(t *testing.T) {
	s := start(t)
	p, out := launch(t, s, sh("trap 'echo got it; exit 7' TERM; echo ready; while :; do sleep 0.01; done"))
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); line != "got it\n" {
		t.Fatal(line, err)
	}
	if code := exitCode(t, p); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("signal after the end: %v", err)
	}
}

// family is a script of processes that try to hide. It prints the IDs of three of them, which never end.
const family = `
	trap '' TERM HUP INT
	sh -c 'echo $$; while :; do sleep 1000; done' &
	setsid sh -c 'echo $$; (while :; do sleep 1000; done) & while :; do sleep 1000; done' &
	(setsid sh -c 'echo $$; while :; do sleep 1000; done' &)
	wait`

func readPIDs(t *testing.T, out *bufio.Reader, n int) []int {
	t.Helper()
	var pids []int
	for range n {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// waitGone waits for a killed process. Its new parent must reap it first.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("process %d ends", pid), func() bool { return !alive(pid) })
}

func TestCloseKillsEveryDescendant(t *testing.T) {
	s := start(t)
	p, out := launch(t, s, sh(family))
	pids := readPIDs(t, out, 3)
	s.Close()
	if code := exitCode(t, p); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d outlived the container", pid)
		}
	}
	if _, err := s.Run(sh(":"), os.Stdin, os.Stdout, os.Stderr); !errors.Is(err, ErrGone) {
		t.Errorf("a process in a closed shim: error %v, want ErrGone", err)
	}
	s.Close() // a second call does nothing
}

func TestOrphansLiveOnUntilClose(t *testing.T) {
	s := start(t)
	p, out := launch(t, s, sh("sh -c 'echo $$; while :; do sleep 1000; done' & sleep 0.1"))
	orphan := readPIDs(t, out, 1)[0]
	if code := exitCode(t, p); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if !alive(orphan) {
		t.Fatal("a background process ended with the command that started it")
	}
	s.Close()
	if alive(orphan) {
		t.Error("an orphan outlived the container")
	}
}

func TestNothingOutlivesAKilledKubelet(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kubelet := exec.Command(self)
	kubelet.Env = append(os.Environ(), holderEnv+"="+family)
	pipe, err := kubelet.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	pids := readPIDs(t, out, 3)
	if err := kubelet.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Every process has the pipe open, so it ends with the last of them.
	rest, err := io.ReadAll(out)
	if err != nil || len(rest) != 0 {
		t.Errorf("read %q, %v", rest, err)
	}
	for _, pid := range pids {
		waitGone(t, pid)
	}
	_ = kubelet.Wait() // killed
}

func TestMainEndsWithAKilledShim(t *testing.T) {
	s := start(t)
	p, out := launch(t, s, sh("echo $$; exec sleep 1000"))
	pid := readPIDs(t, out, 1)[0]
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, p); code != killedCode {
		t.Errorf("exit code %d, want %d", code, killedCode)
	}
	if rest, _ := io.ReadAll(out); len(rest) != 0 {
		t.Errorf("read %q", rest)
	}
	waitGone(t, pid)
}
