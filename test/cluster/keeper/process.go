package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

// A spawner starts all processes from one thread, because the end of a thread counts as the parent's death (Pdeathsig).
// Children that it has not started are remains of dead components, and can be killed.
type spawner struct {
	calls   chan func()
	started map[int]bool // touched by the spawning goroutine only
}

func newSpawner() *spawner {
	s := &spawner{calls: make(chan func()), started: map[int]bool{}}
	go func() {
		runtime.LockOSThread()
		for call := range s.calls {
			call()
		}
	}()
	return s
}

func (s *spawner) do(f func()) {
	done := make(chan struct{})
	s.calls <- func() { defer close(done); f() }
	<-done
}

func (s *spawner) start(cmd *exec.Cmd) (err error) {
	s.do(func() {
		if err = cmd.Start(); err == nil {
			s.started[cmd.Process.Pid] = true
		}
	})
	return err
}

// ended kills the children that a process of the keeper left.
func (s *spawner) ended(cmd *exec.Cmd) {
	s.do(func() {
		delete(s.started, cmd.Process.Pid)
		_ = ownership.KillOrphans(func(pid int) bool { return s.started[pid] })
	})
}

func (s *spawner) close() { close(s.calls) }

// A process is one component. It can be started again after it ended. It is safe for concurrent use.
type process struct {
	name    string
	command []string // path and arguments
	dir     string   // working directory
	env     []string
	log     string // file that its output is appended to
	before  func() // prepares a start; may be nil
	spawner *spawner

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd ended
	paused bool
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs() {
		return nil
	}
	if p.before != nil {
		p.before()
	}
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.Stdout, cmd.Stderr = log, log
	// A separate process group: a terminal's ctrl-C reaches only the keeper, which ends components in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.spawner.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.paused = cmd, ended, false
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		p.spawner.ended(cmd)
		close(ended)
	}()
	return nil
}

// p.mu must be locked.
func (p *process) runs() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) kill() {
	p.mu.Lock()
	cmd, ended, runs := p.cmd, p.ended, p.runs()
	p.mu.Unlock()
	if runs {
		_ = cmd.Process.Kill()
		<-ended
	}
}

// terminate sends SIGTERM, and kills the process after grace.
func (p *process) terminate(grace time.Duration) {
	p.mu.Lock()
	cmd, ended, runs := p.cmd, p.ended, p.runs()
	p.mu.Unlock()
	if !runs {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Process.Signal(syscall.SIGCONT) // a paused process would not hear the first
	select {
	case <-ended:
	case <-time.After(grace):
		p.kill()
	}
}

func (p *process) pause() error  { return p.signal(syscall.SIGSTOP, true) }
func (p *process) resume() error { return p.signal(syscall.SIGCONT, false) }

func (p *process) signal(s syscall.Signal, paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runs() {
		return fmt.Errorf("%s does not run", p.name)
	}
	err := p.cmd.Process.Signal(s)
	if err == nil && paused {
		err = untilStopped(p.cmd.Process.Pid)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.paused = paused
	return nil
}

// untilStopped waits until a child has stopped or ended. Its threads could still respond a moment after SIGSTOP.
func untilStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.runs() {
		return nil
	}
	return fmt.Errorf("%s ended (%s); its log ends:\n%s", p.name, p.cmd.ProcessState, logTail(p.log))
}

func (p *process) state() ComponentState {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cmd == nil:
		return ComponentState{Name: p.name, State: "not started"}
	case !p.runs():
		return ComponentState{Name: p.name, State: p.cmd.ProcessState.String()}
	case p.paused:
		return ComponentState{Name: p.name, PID: p.cmd.Process.Pid, State: "paused"}
	}
	return ComponentState{Name: p.name, PID: p.cmd.Process.Pid, State: "running"}
}

func logTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const size = 4 << 10
	if _, err := f.Seek(-size, io.SeekEnd); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err.Error()
	}
	text, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
