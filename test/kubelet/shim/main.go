package shim

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process may fork while it is being killed.
const killInterval = 5 * time.Millisecond

// Invoked reports whether this process is a shim. A program that uses Start must call it first in main (a test in
// TestMain) and then exit with Main's code.
func Invoked() bool { return os.Args[0] == processName }

// Main runs the shim. It returns when all of its processes have ended.
func Main() int {
	// Children die with the thread that started them (see sysProcAttr), so this thread must stay.
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", strings.Join(os.Args, " "), err)
		return 1
	}
	return 0
}

func run() error {
	file := os.NewFile(socketFD, "kubelet")
	conn, err := net.FileConn(file)
	file.Close() // FileConn uses a copy, which children do not inherit
	if err != nil {
		return fmt.Errorf("file %d is not the kubelet's socket: %w", socketFD, err)
	}
	defer conn.Close()
	if err := adoptOrphans(); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	k := &keeper{
		socket: &fileReceiver{conn: conn.(*net.UnixConn)},
		events: json.NewEncoder(conn),
		mine:   make(map[int]bool),
	}

	exits := make(chan os.Signal, 1)
	signal.Notify(exits, syscall.SIGCHLD)
	go func() {
		for range exits {
			k.reap()
		}
	}()
	// A signal to the shim is meant for the container.
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		<-ends
		_ = conn.(*net.UnixConn).CloseRead()
	}()

	err = k.serve()
	k.killAll()
	return err
}

type keeper struct {
	socket *fileReceiver
	mu     sync.Mutex // guards the following: "started" must be sent before "exited"
	events *json.Encoder
	mine   map[int]bool // processes that the kubelet requested, without their descendants
}

func (k *keeper) serve() error {
	requests := json.NewDecoder(k.socket)
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			return nil // the kubelet closed the socket, or died
		}
		if r.Start == nil {
			k.signal(r.PID, r.Signal)
			continue
		}
		files, err := k.socket.next(3)
		if err != nil {
			return err
		}
		k.start(r.Start, files)
	}
}

func (k *keeper) start(c *Command, files []*os.File) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pid, err := startProcess(c, files)
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		_ = k.events.Encode(event{Error: err.Error()}) // serve notices a kubelet that is gone
		return
	}
	k.mine[pid] = true
	_ = k.events.Encode(event{Started: pid})
}

func startProcess(c *Command, files []*os.File) (int, error) {
	path, err := exec.LookPath(c.Argv[0])
	if err != nil {
		if strings.ContainsRune(c.Argv[0], os.PathSeparator) {
			path = c.Argv[0] // relative to the working directory of the process, not to ours
		} else {
			return 0, err
		}
	}
	process, err := os.StartProcess(path, c.Argv, &os.ProcAttr{
		Dir:   c.Dir,
		Env:   append(os.Environ(), c.Env...),
		Files: files,
		Sys:   sysProcAttr(c.TTY),
	})
	if err != nil {
		return 0, err
	}
	pid := process.Pid
	return pid, process.Release() // reap waits for it
}

func (k *keeper) signal(pid int, signal syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mine[pid] { // not reaped yet, so the ID is still valid
		_ = syscall.Kill(pid, signal)
	}
}

func (k *keeper) reap() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return false // ECHILD
		case pid == 0:
			return true
		}
		if !k.mine[pid] {
			continue
		}
		delete(k.mine, pid)
		code := status.ExitStatus()
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
		_ = k.events.Encode(event{Exited: pid, Code: code})
	}
}

// killAll ends every process. Orphans become children of the shim, so it is done when there are no children.
func (k *keeper) killAll() {
	for k.reap() {
		k.mu.Lock()
		for _, pid := range k.targets() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		k.mu.Unlock()
		time.Sleep(killInterval)
	}
}

type fileReceiver struct {
	conn  *net.UnixConn
	files []*os.File
}

func (r *fileReceiver) Read(p []byte) (int, error) {
	control := make([]byte, syscall.CmsgSpace(3*4))
	n, controlLen, _, _, err := r.conn.ReadMsgUnix(p, control)
	if err != nil {
		return 0, err // n is -1 if the kubelet died with unread events (ECONNRESET), which violates io.Reader
	}
	messages, err := syscall.ParseSocketControlMessage(control[:controlLen])
	if err != nil {
		return n, err
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return n, err
		}
		for _, fd := range fds {
			r.files = append(r.files, os.NewFile(uintptr(fd), "stdio"))
		}
	}
	return n, nil
}

func (r *fileReceiver) next(n int) ([]*os.File, error) {
	if len(r.files) < n {
		return nil, fmt.Errorf("a start request came with %d files instead of %d", len(r.files), n)
	}
	files := r.files[:n:n]
	r.files = r.files[n:]
	return files, nil
}
