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

type process struct {
	f         *Function
	events    chan handover
	ready     chan struct{} // closed at the first request for an event
	exited    chan struct{} // closed when the process and its server have ended
	served    int           // number of invocations; changed by its own handler only
	idleTimer *time.Timer   // guarded by f.mu

	mu       sync.Mutex
	pid      int
	dead     bool
	cause    error // why it was killed or ended
	initErr  error // the error that the process reported
	waiting  bool  // a request for the next event is open
	cur      *invocation
	answered bool // a response to cur has begun
	deadline *time.Timer
}

type handover struct {
	inv *invocation
	ok  chan bool
}

// start blocks until the new process requests its first event. The caller has acquired a slot, which start releases
// after a failure. requestID is for errors.
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
		p.kill(&FunctionError{"Sandbox.Timedout",
			fmt.Sprintf("Init timed out after %.2f seconds", f.cfg.InitTimeout.Seconds())})
		<-p.exited
	}
	return nil, p.err(requestID)
}

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
	p.f.remove(p)
	if inv != nil {
		p.end(inv)
	}
	close(p.exited)
}

func (p *process) end(inv *invocation) {
	if p.deadline != nil {
		p.deadline.Stop()
	}
	inv.setResult(result{err: p.err(inv.id)})
	close(inv.finished)
}

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

func (p *process) serve() error {
	cfg := &p.f.cfg
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // binds at once
	if err != nil {
		return fmt.Errorf("function %s: listen for the runtime: %w", cfg.Name, err)
	}
	srv := &http.Server{
		Handler:           p.runtimeAPI(),
		ReadHeaderTimeout: 10 * time.Second, // no other timeout: a stopped process neither reads nor writes
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) }) // until Close
	defer wg.Wait()
	defer srv.Close()

	r, w, err := os.Pipe() // not exec's pipe, which stays open for processes that this one started
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
	killed := p.cause != nil // before there was a process to kill
	p.mu.Unlock()
	if killed {
		p.kill(nil)
	}
	wg.Go(func() {
		defer r.Close()
		p.f.print(r, cmd.Process.Pid)
	})
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the processes that it started
	_ = r.SetReadDeadline(time.Now().Add(time.Second))  // a process of another group may keep the pipe open
	if err == nil {
		return &FunctionError{"Runtime.ExitError", "Runtime exited without providing a reason"}
	}
	return &FunctionError{"Runtime.ExitError", "Runtime exited with error: " + err.Error()}
}

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
			_, _ = f.cfg.Output.Write(out) // output is best effort
			f.out.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (p *process) signal(sig syscall.Signal) {
	if p.pid > 0 && !p.dead {
		_ = syscall.Kill(-p.pid, sig) // on an error the process has ended, and run handles that
	}
}

func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(syscall.SIGSTOP)
}

// kill kills the process, even while it is stopped. Its invocation fails with the first cause that is not nil.
func (p *process) kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		p.cause = cause
	}
	p.signal(syscall.SIGKILL)
}

func (p *process) offer(inv *invocation) bool {
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
		<-p.exited // without a connection the process is dying or useless
		return false
	case <-p.exited:
		return false
	}
}

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
