package lambda

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is one execution environment: a process, and the Runtime API that it alone talks to.
type process struct {
	f         *Function
	events    chan handover
	ready     chan struct{} // closed at the first request for an event
	exited    chan struct{} // closed when nothing is left of it
	served    int           // invocations; changed by its own handler only
	idleTimer *time.Timer   // guarded by f.mu

	mu       sync.Mutex
	pid      int
	dead     bool
	cause    error // why it was killed
	initErr  error // what it said itself
	waiting  bool  // a request for an event is open
	cur      *invocation
	answered bool // of cur
	deadline *time.Timer
}

// handover is an event for a process; ok tells whether it was there to take it.
type handover struct {
	inv *invocation
	ok  chan bool
}

// start runs a new process until it asks for its first event. The caller has taken a slot, which start gives back on
// failure. requestID is of the invocation that it is started for.
func (f *Function) start(requestID string) (*process, error) {
	p := &process{f: f, events: make(chan handover), ready: make(chan struct{}), exited: make(chan struct{})}
	f.mu.Lock()
	if f.closed {
		f.slots--
		f.mu.Unlock()
		return nil, ErrClosed
	}
	f.all[p] = struct{}{}
	f.wg.Add(1)
	f.mu.Unlock()

	go func() {
		defer f.wg.Done()
		p.run()
	}()
	limit := time.NewTimer(f.cfg.InitTimeout)
	defer limit.Stop()
	select {
	case <-p.ready:
		return p, nil
	case <-p.exited:
	case <-limit.C:
		p.kill(&FunctionError{"Sandbox.Timedout", fmt.Sprintf("Init timed out after %.2f seconds", f.cfg.InitTimeout.Seconds())})
		<-p.exited
	}
	return nil, p.err(requestID)
}

// run has the whole life of a process in it.
func (p *process) run() {
	status := p.serve()
	p.mu.Lock()
	p.dead = true
	if p.cause == nil {
		p.cause = status
	}
	inv := p.cur
	p.cur = nil
	p.mu.Unlock()
	p.f.forget(p)
	if inv != nil {
		p.end(inv)
	}
	close(p.exited)
}

// end fails inv, which p had when it died.
func (p *process) end(inv *invocation) {
	if p.deadline != nil {
		p.deadline.Stop()
	}
	inv.settle(result{err: p.err(inv.id)})
	close(inv.over)
}

// err says why p is gone, as Lambda does.
func (p *process) err(requestID string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.initErr != nil {
		return p.initErr
	}
	var fe *FunctionError
	if errors.As(p.cause, &fe) {
		return &FunctionError{fe.Type, "RequestId: " + requestID + " Error: " + fe.Message}
	}
	return p.cause
}

// serve starts the process and its Runtime API, and waits for its end, of which it returns the reason.
func (p *process) serve() error {
	cfg := &p.f.cfg
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // binds at once
	if err != nil {
		return fmt.Errorf("function %s: listen for the runtime: %w", cfg.Name, err)
	}
	srv := &http.Server{
		Handler:           p.runtimeAPI(),
		ReadHeaderTimeout: 10 * time.Second, // no other: a stopped process neither reads nor writes
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) }) // until Close
	defer wg.Wait()
	defer srv.Close()

	r, w, err := os.Pipe() // not exec's: it would wait for all that the process left running
	if err != nil {
		return fmt.Errorf("function %s: %w", cfg.Name, err)
	}
	cmd := exec.Command(cfg.Bootstrap) //nolint:gosec,noctx // the configured function; ends by kill
	cmd.Dir = filepath.Dir(cfg.Bootstrap)
	cmd.Env = append(p.f.env, "AWS_LAMBDA_RUNTIME_API="+ln.Addr().String())
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = sysProcAttr()

	// The kernel kills the process when the thread that started it ends, so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return &FunctionError{"Runtime.InvalidEntrypoint", "Couldn't run the bootstrap: " + err.Error()}
	}
	p.mu.Lock()
	p.pid = cmd.Process.Pid
	killed := p.cause != nil // before there was anything to kill
	p.mu.Unlock()
	if killed {
		p.kill(nil)
	}
	wg.Go(func() {
		defer r.Close()
		p.f.print(r, cmd.Process.Pid)
	})
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it started itself
	_ = r.SetReadDeadline(time.Now().Add(time.Second))  // something in another process group may hold the pipe
	if err == nil {
		return &FunctionError{"Runtime.ExitError", "Runtime exited without providing a reason"}
	}
	return &FunctionError{"Runtime.ExitError", "Runtime exited with error: " + err.Error()}
}

// print copies the output of a process, line by line.
func (f *Function) print(r *os.File, pid int) {
	prefix := fmt.Sprintf("[%s %d] ", f.cfg.Name, pid)
	for in := bufio.NewReaderSize(r, 64<<10); ; {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			out := append([]byte(prefix), line...)
			if out[len(out)-1] != '\n' {
				out = append(out, '\n')
			}
			f.out.Lock()
			_, _ = f.cfg.Output.Write(out) // nobody to tell
			f.out.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// signal reaches the process and what it started.
func (p *process) signal(sig syscall.Signal) {
	if p.pid > 0 && !p.dead {
		_ = syscall.Kill(-p.pid, sig) // gone: run takes note
	}
}

// stop freezes the process.
func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(syscall.SIGSTOP)
}

// kill ends the process, also a stopped one. The first cause that is not nil is what its invocation fails with.
func (p *process) kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		p.cause = cause
	}
	p.signal(syscall.SIGKILL)
}

// hand gives inv to the process, which waits for an event. It reports whether the process took it.
func (p *process) hand(inv *invocation) bool {
	if !p.f.cfg.NeverStop {
		p.mu.Lock()
		p.signal(syscall.SIGCONT)
		p.mu.Unlock()
	}
	h := handover{inv, make(chan bool, 1)}
	select {
	case p.events <- h:
		if <-h.ok {
			return true
		}
		<-p.exited // its connection is gone: it is dying, or useless
		return false
	case <-p.exited:
		return false
	}
}

// begin makes inv the current invocation. It fails if the process is gone.
func (p *process) begin(inv *invocation) (deadline time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return time.Time{}, false
	}
	timeout := p.f.cfg.Timeout
	p.cur, p.answered = inv, false
	p.deadline = time.AfterFunc(timeout, func() {
		p.kill(&FunctionError{"Sandbox.Timedout", fmt.Sprintf("Task timed out after %.2f seconds", timeout.Seconds())})
	})
	return time.Now().Add(timeout), true
}
