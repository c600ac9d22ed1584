package ownership

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"golang.org/x/sys/unix"
)

// The test program is also the guard and the keeper, depending on role.
const role = "OWNERSHIP_TEST_ROLE"

const runName = "run"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "guard":
		code, err := Guard(runName, role+"=keeper")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 99
		}
		os.Exit(code)
	case "keeper":
		if err := playKeeper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// playKeeper keeps a child that itself leaves an orphan in a session of its own, until SIGTERM or the end of its input.
func playKeeper() error {
	if err := Adopt(); err != nil {
		return err
	}
	run, err := Create(runName)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop <- syscall.SIGTERM
	}()
	child := exec.Command("sh", "-c", `setsid sh -c 'sleep 1000 & echo orphan $!' & sleep 1000`)
	child.Env = append(os.Environ(), Mark(run.Path))
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println("child", child.Process.Pid)
	fmt.Println("keeper", os.Getpid())
	fmt.Println("ready")
	<-stop
	_ = child.Process.Kill()
	_ = child.Wait()
	return errors.Join(KillDescendants(), run.Remove())
}

type playedRun struct {
	guard  *exec.Cmd
	stdin  io.WriteCloser
	keeper int
	all    []int // every process below the guard
}

func startRun(t *testing.T) *playedRun {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	r := &playedRun{guard: exec.Command(os.Args[0])}
	r.guard.Env = append(os.Environ(), role+"=guard", "GORACE=atexit_sleep_ms=0")
	r.guard.Stderr = os.Stderr
	var err error
	if r.stdin, err = r.guard.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := r.guard.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.guard.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stdin.Close(); _ = r.guard.Wait() })

	pids, lines := map[string]int{}, bufio.NewScanner(stdout)
	for (len(pids) < 4) && lines.Scan() {
		what, pid, _ := strings.Cut(lines.Text(), " ")
		pids[what], _ = strconv.Atoi(pid)
	}
	if len(pids) < 4 {
		t.Fatalf("the keeper did not start: %v", lines.Err())
	}
	r.keeper = pids["keeper"]
	r.all = []int{pids["keeper"], pids["child"], pids["orphan"]}
	return r
}

func TestNothingIsLeft(t *testing.T) {
	tests := map[string]func(t *testing.T, r *playedRun){
		"input ends":        func(t *testing.T, r *playedRun) { r.stdin.Close() },
		"keeper is killed":  func(t *testing.T, r *playedRun) { kill(t, r.keeper, syscall.SIGKILL) },
		"guard is killed":   func(t *testing.T, r *playedRun) { kill(t, r.guard.Process.Pid, syscall.SIGKILL) },
		"guard is told to":  func(t *testing.T, r *playedRun) { kill(t, r.guard.Process.Pid, syscall.SIGTERM) },
		"keeper is told to": func(t *testing.T, r *playedRun) { kill(t, r.keeper, syscall.SIGTERM) },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			r := startRun(t)
			end(t, r)
			wantGone(t, r)
		})
	}
}

// TestSweep: the next run must clean up if guard and keeper were killed together.
func TestSweep(t *testing.T) {
	r := startRun(t)
	kill(t, r.guard.Process.Pid, syscall.SIGSTOP)
	waitStopped(t, r.guard.Process.Pid)
	kill(t, r.keeper, syscall.SIGKILL)
	kill(t, r.guard.Process.Pid, syscall.SIGKILL)
	_ = r.guard.Wait()
	waittest.Until(t, "the keeper has ended", func() bool { return !alive(r.keeper) })

	path := filepath.Join(Root(), runName)
	waitAbandoned(t, path)
	if left, err := Marked(path); err != nil || len(left) == 0 {
		t.Fatalf("nothing is left to sweep (%v): the test shows nothing", err)
	}
	next, err := Create(runName) // the next run, of the same name
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range r.all {
		if alive(pid) {
			t.Errorf("process %d is alive after the sweep", pid)
		}
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		t.Errorf("the run directory is not new: %v, %v", entries, err)
	}
	if err := next.Remove(); err != nil {
		t.Error(err)
	}
	wantGone(t, r)
}

func TestSweepSparesTheLiving(t *testing.T) {
	r := startRun(t)
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range r.all {
		if !alive(pid) {
			t.Errorf("process %d of a living run was killed", pid)
		}
	}
	if _, err := Create(runName); !errors.Is(err, ErrRunning) {
		t.Errorf("a second run of the same name: got %v, want ErrRunning", err)
	}
	if runs, err := Runs(); err != nil || len(runs) != 1 {
		t.Errorf("runs are %v, %v; want one", runs, err)
	}
}

// TestSecondRunOfTheName: a second guard must fail, and must not remove the directory of the first one.
func TestSecondRunOfTheName(t *testing.T) {
	r := startRun(t)
	second := exec.Command(os.Args[0])
	second.Env = append(os.Environ(), role+"=guard")
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), ErrRunning.Error()) {
		t.Errorf("the second run ended with %v, %s; want ErrRunning", err, out)
	}
	if gone(filepath.Join(Root(), runName)) || !alive(r.keeper) {
		t.Error("the first run is gone")
	}
}

func TestRootOfSomebodyElse(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.Mkdir(Root(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(Root(), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(runName); err == nil || !strings.Contains(err.Error(), "accessible to others") {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := os.Remove(Root()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), Root()); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(runName); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestKillOrphans(t *testing.T) {
	if err := Adopt(); err != nil {
		t.Fatal(err)
	}
	mine := exec.Command("sleep", "1000")
	if err := mine.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Process.Kill(); _ = mine.Wait() }()
	out, err := exec.Command("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(orphan) {
		t.Fatal("there is no orphan: the test shows nothing")
	}
	if err := KillOrphans(func(pid int) bool { return pid == mine.Process.Pid }); err != nil {
		t.Fatal(err)
	}
	if alive(orphan) {
		t.Error("the orphan is alive")
	}
	if !alive(mine.Process.Pid) {
		t.Error("a child that was started was killed")
	}
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("signal %d: %v", pid, err)
	}
}

func waitStopped(t *testing.T, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatalf("wait until %d has stopped: %v", pid, err)
		}
	}
}

// waitAbandoned waits until the keeper's death has freed its lock. A killed process of several threads ends a moment
// after the signal.
func waitAbandoned(t *testing.T, path string) {
	t.Helper()
	waittest.Until(t, "the killed keeper frees its directory", func() bool {
		lock, err := tryLock(path)
		if err != nil {
			t.Fatal(err)
		}
		if lock != nil {
			lock.Close()
		}
		return lock != nil
	})
}

func alive(pid int) bool { return startOf(pid) != "" }

func wantGone(t *testing.T, r *playedRun) {
	t.Helper()
	waittest.UntilNoError(t, "nothing is left", func(context.Context) error {
		var left []string
		for _, pid := range r.all {
			if alive(pid) {
				left = append(left, strconv.Itoa(pid))
			}
		}
		if !gone(Root()) {
			left = append(left, Root())
		}
		if len(left) > 0 {
			return fmt.Errorf("left behind: %v", left)
		}
		return nil
	})
}
