// Package shim manages the processes of one container.
//
// A shim is this program, started under another name, between the kubelet and a container's processes. It starts
// processes on request, reports their results, and adopts every orphaned descendant. When the kubelet closes the
// connection or dies, the shim kills all of them and exits.
//
// Invariants:
//   - No process of a container outlives the container or the kubelet, even after SIGKILL.
//   - Processes of kubectl exec belong to the container, too. Their background processes end with it.
//
// Both sides exchange JSON over a socket pair. Requests contain the files for a process's stdin, stdout and stderr. It
// works on Linux only.
package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const processName = "container-shim"

const socketFD = 3

// killedCode is the exit code after SIGKILL, as in container runtimes.
const killedCode = 128 + int(syscall.SIGKILL)

// ErrGone is returned for requests to a shim that has ended.
var ErrGone = errors.New("the container's processes have ended")

// Command describes one process.
type Command struct {
	Argv []string `json:"argv"`          // program, searched in the container's PATH, and its arguments
	Dir  string   `json:"dir,omitempty"` // working directory; empty means the container's
	Env  []string `json:"env,omitempty"` // added to the container's environment, as NAME=value
	TTY  bool     `json:"tty,omitempty"` // stdin becomes the controlling terminal
}

type request struct {
	Start  *Command       `json:"start,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
	PID    int            `json:"pid,omitempty"` // process to signal
}

type event struct {
	Started int    `json:"started,omitempty"` // process ID
	Error   string `json:"error,omitempty"`   // reason for which nothing was started
	Exited  int    `json:"exited,omitempty"`  // process ID
	Code    int    `json:"code"`              // exit code of Exited; 128 + signal after a signal
}

// Shim is the kubelet's end. Its methods are safe for concurrent use.
type Shim struct {
	cmd     *exec.Cmd
	conn    *net.UnixConn
	mu      sync.Mutex    // one request at a time
	replies chan reply    // the response to the current start request
	gone    chan struct{} // closed when the shim has ended and is reaped
}

type reply struct {
	process *Process
	err     error
}

// Process is one process of a shim.
type Process struct {
	shim *Shim
	pid  int
	done chan struct{}
	code int
}

// Start starts a shim whose processes have the given directory and environment. The label is visible in process
// listings. The caller must call Close.
func Start(label, dir string, env []string) (*Shim, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close() // FileConn uses a copy
	if err != nil {
		return nil, fmt.Errorf("open the socket pair: %w", err)
	}
	cmd := &exec.Cmd{
		Path:       "/proc/self/exe", // this program, even if its file was replaced
		Args:       []string{processName, label},
		Dir:        dir,
		Env:        env,
		Stderr:     os.Stderr,
		ExtraFiles: []*os.File{theirs},
		// A separate session, so that a ctrl-C or a kill of the kubelet's process group leaves the shim time to clean up.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start the shim: %w", err)
	}
	s := &Shim{
		cmd:     cmd,
		conn:    conn.(*net.UnixConn),
		replies: make(chan reply),
		gone:    make(chan struct{}),
	}
	go s.receive()
	return s, nil
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "shim"), os.NewFile(uintptr(fds[1]), "kubelet"), nil
}

// Run starts a process with the given files, which the caller may close after Run has returned.
func (s *Shim) Run(command Command, stdin, stdout, stderr *os.File) (*Process, error) {
	// Fd also makes the files blocking, as the new process expects.
	rights := syscall.UnixRights(int(stdin.Fd()), int(stdout.Fd()), int(stderr.Fd()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.send(request{Start: &command}, rights); err != nil {
		return nil, err
	}
	select {
	case r := <-s.replies:
		return r.process, r.err
	case <-s.gone:
		return nil, ErrGone
	}
}

// Close kills every process of the container and returns when none is left.
func (s *Shim) Close() {
	_ = s.conn.CloseWrite() // fails only if the shim is gone
	<-s.gone
}

func (s *Shim) send(r request, rights []byte) error {
	message, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	n, _, err := s.conn.WriteMsgUnix(message, rights, nil)
	for err == nil && n < len(message) {
		message = message[n:]
		n, err = s.conn.Write(message)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrGone, err)
	}
	return nil
}

// receive is the only reader of the socket and the only owner of the process table.
func (s *Shim) receive() {
	processes := make(map[int]*Process)
	events := json.NewDecoder(s.conn)
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			break
		}
		switch {
		case e.Started != 0:
			p := &Process{shim: s, pid: e.Started, done: make(chan struct{})}
			processes[e.Started] = p
			s.replies <- reply{process: p}
		case e.Error != "":
			s.replies <- reply{err: errors.New(e.Error)}
		case e.Exited != 0:
			processes[e.Exited].exit(e.Code)
			delete(processes, e.Exited)
		}
	}
	_ = s.cmd.Wait() // only the processes' exit codes matter
	for _, p := range processes {
		p.exit(killedCode)
	}
	close(s.gone)
	_ = s.conn.Close() // the other end is gone
}

func (p *Process) exit(code int) {
	p.code = code
	close(p.done)
}

// Signal sends a signal to the process. It does nothing if the process has ended.
func (p *Process) Signal(signal syscall.Signal) error {
	p.shim.mu.Lock()
	defer p.shim.mu.Unlock()
	select {
	case <-p.done:
		return nil
	default:
		return p.shim.send(request{Signal: signal, PID: p.pid}, nil)
	}
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the process's exit code, or 128 + signal after a signal. It is valid after Done is closed.
func (p *Process) ExitCode() int { return p.code }
