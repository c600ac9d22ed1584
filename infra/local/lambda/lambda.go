// Package lambda runs functions on one machine as AWS Lambda runs them: a bootstrap binary in processes of its own, against the
// Lambda Runtime API.
//
// What is as on AWS: one invocation at a time in a process, more processes under concurrency, a throttle beyond the limit;
// payload limits; deadlines, with a process that misses one killed; a process stopped (SIGSTOP) from the moment it asks for
// the next event until there is one; processes that vanish while idle; an environment that holds nothing of the caller's; a caller
// that goes away does not end an invocation. What is not: memory is not limited, the file system is the machine's, and nothing isolates
// the process.
//
// No process outlives its Function: Close kills their process groups, and the kernel kills them should this process die (on
// Linux).
package lambda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
)

// The payload limits of Lambda, in bytes, as its own error messages have them.
const (
	RequestLimit  = 6 << 20
	ResponseLimit = 6<<20 + 100
	StreamLimit   = 200 << 20
)

// Invoker runs one invocation: a Function's, or a handler's in this process (Inline). The answer is whatever the function
// answered. It is safe for concurrent use.
type Invoker interface {
	Invoke(ctx context.Context, payload []byte) ([]byte, error)
}

// Errors of Lambda itself. What the function did wrong is a *FunctionError.
var (
	ErrThrottled       = errors.New("TooManyRequestsException: rate exceeded (429)")
	ErrRequestTooLarge = errors.New("RequestTooLargeException: the request payload is larger than 6 MB (413)")
	ErrClosed          = errors.New("the function is closed")
)

// FunctionError is a failed invocation, or initialisation: of the runtime's own making, or Lambda's words about a process that
// crashed (Runtime.ExitError) or ran too long (Sandbox.Timedout).
type FunctionError struct {
	Type, Message string
}

// Error implements error.
func (e *FunctionError) Error() string { return e.Type + ": " + e.Message }

// Config of a Function.
type Config struct {
	Name      string            // AWS_LAMBDA_FUNCTION_NAME; required
	Bootstrap string            // path of the binary; required. Its directory is the working directory
	Env       map[string]string // added to what Lambda sets; may not name Lambda's reserved variables
	Region    string            // default "us-east-1"
	MemoryMB  int               // told to the function, not enforced; default 128

	Timeout        time.Duration // of an invocation; default 30 s
	InitTimeout    time.Duration // from start to the first request for an event; default 10 s
	MaxConcurrency int           // processes; default 10
	MaxQueue       int           // invocations that wait for a process; default 0. AWS has no such queue
	QueueTimeout   time.Duration // of an invocation that waits for a process; default 10 s

	MaxIdle        time.Duration // an idle process is killed after it; 0 is never
	MaxInvocations int           // a process is killed after so many; 0 is never
	NeverStop      bool          // leaves idle processes running

	Output io.Writer // what processes print, each line with the function's name and the process id; nil discards it
}

// Function is a function and its processes. It is safe for concurrent use.
type Function struct {
	cfg Config
	env []string

	out sync.Mutex // guards cfg.Output

	mu     sync.Mutex
	closed bool
	all    map[*process]struct{}
	idle   []*process      // waiting for an event, the last used last
	slots  int             // processes that are, or are about to be
	queue  []chan struct{} // invocations that wait for a process, the first to come first
	wg     sync.WaitGroup  // goroutines; added to under mu while not closed
}

// NewFunction checks cfg. No process is started before the first invocation. The caller must Close the Function.
func NewFunction(cfg Config) (*Function, error) {
	if cfg.Name == "" || cfg.Bootstrap == "" {
		return nil, errors.New("a function needs a Name and a Bootstrap")
	}
	bootstrap, err := filepath.Abs(cfg.Bootstrap)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", cfg.Name, err)
	}
	if st, err := os.Stat(bootstrap); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("function %s: %s is not an executable file", cfg.Name, bootstrap)
	}
	cfg.Bootstrap = bootstrap
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.MemoryMB = cmp.Or(cfg.MemoryMB, 128)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.InitTimeout = cmp.Or(cfg.InitTimeout, 10*time.Second)
	cfg.MaxConcurrency = cmp.Or(cfg.MaxConcurrency, 10)
	cfg.QueueTimeout = cmp.Or(cfg.QueueTimeout, 10*time.Second)
	if cfg.Output == nil {
		cfg.Output = io.Discard
	}
	env, err := environment(cfg)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", cfg.Name, err)
	}
	return &Function{cfg: cfg, env: env, all: make(map[*process]struct{})}, nil
}

// invocation is one event on its way.
type invocation struct {
	id, trace string
	payload   []byte
	stream    bool
	settled   sync.Once
	result    chan result   // holds one
	over      chan struct{} // closed when the process wants the next event, or is gone
}

type result struct {
	payload []byte
	stream  io.ReadCloser
	err     error
}

// settle gives the caller its result; only the first counts.
func (inv *invocation) settle(r result) { inv.settled.Do(func() { inv.result <- r }) }

// Invoke runs one invocation and returns the function's whole answer. Errors: a *FunctionError, ErrThrottled, ErrRequestTooLarge,
// ErrClosed, or that of ctx, whose end does not end the invocation.
func (f *Function) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	r, err := f.invoke(ctx, payload, false)
	return r.payload, err
}

// InvokeStream is Invoke for functions that stream: it returns as soon as the answer begins. The caller must Close the
// reader. A read error that is not io.EOF, usually a *FunctionError, means that the answer broke off.
func (f *Function) InvokeStream(ctx context.Context, payload []byte) (io.ReadCloser, error) {
	r, err := f.invoke(ctx, payload, true)
	return r.stream, err
}

type runningKey struct{}

// WithRunning returns a context whose invocations are in running until their processes are free again. An invocation
// goes on when its ctx ends, so that a limit of processes must wait for running.
func WithRunning(ctx context.Context, running *sync.WaitGroup) context.Context {
	return context.WithValue(ctx, runningKey{}, running)
}

// Running returns the running of WithRunning, for Invokers. Without one it returns a new WaitGroup.
func Running(ctx context.Context) *sync.WaitGroup {
	if running, ok := ctx.Value(runningKey{}).(*sync.WaitGroup); ok {
		return running
	}
	return &sync.WaitGroup{}
}

// settleTime is how long an answer is held back for its process to ask for the next event, so that who calls again at once
// finds it idle.
const settleTime = 50 * time.Millisecond

func (f *Function) invoke(ctx context.Context, payload []byte, stream bool) (result, error) {
	if len(payload) > RequestLimit {
		return result{}, ErrRequestTooLarge
	}
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	inv := &invocation{
		id: uuid.NewString(), trace: event.TraceID() + ";Sampled=0", payload: payload, stream: stream,
		result: make(chan result, 1), over: make(chan struct{}),
	}
	p, err := f.acquire(ctx)
	if err != nil {
		return result{}, err
	}
	Running(ctx).Go(func() { <-inv.over })
	go func() {
		defer f.wg.Done()
		f.deliver(p, inv)
	}()
	select {
	case r := <-inv.result:
		if r.stream == nil {
			t := time.NewTimer(settleTime)
			defer t.Stop()
			select {
			case <-inv.over:
			case <-t.C:
			case <-ctx.Done():
			}
		}
		return r, r.err
	case <-ctx.Done():
		go func() { // ends with the invocation
			if r := <-inv.result; r.stream != nil {
				_ = r.stream.Close()
			}
		}()
		return result{}, ctx.Err()
	}
}

// tryAcquire returns an idle process, or nil and the right to start one. It adds to wg. mu must be locked.
func (f *Function) tryAcquire() (*process, error) {
	if f.closed {
		return nil, ErrClosed
	}
	var p *process
	switch n := len(f.idle); {
	case n > 0:
		p = f.idle[n-1]
		f.idle = f.idle[:n-1]
		if p.idleTimer != nil {
			p.idleTimer.Stop()
		}
	case f.slots < f.cfg.MaxConcurrency:
		f.slots++
	default:
		return nil, ErrThrottled
	}
	f.wg.Add(1)
	return p, nil
}

// deliver hands inv to a process. One that dies before it has the event does not fail the invocation.
func (f *Function) deliver(p *process, inv *invocation) {
	for {
		var err error
		if p == nil {
			if p, err = f.start(inv.id); err != nil {
				inv.settle(result{err: err})
				close(inv.over)
				return
			}
		}
		if p.hand(inv) {
			return
		}
		if p, err = f.acquire(context.Background()); err != nil { // QueueTimeout bounds it
			inv.settle(result{err: err})
			close(inv.over)
			return
		}
		f.wg.Done() // this goroutine is counted already
	}
}

// release takes back a process that asks for the next event.
func (f *Function) release(p *process) {
	retire := f.cfg.MaxInvocations > 0 && p.served >= f.cfg.MaxInvocations
	if !retire && !f.cfg.NeverStop {
		p.stop()
	}
	f.mu.Lock()
	retire = retire || f.closed
	if _, alive := f.all[p]; alive && !retire {
		f.idle = append(f.idle, p)
		if f.cfg.MaxIdle > 0 {
			p.idleTimer = time.AfterFunc(f.cfg.MaxIdle, func() { f.expire(p) })
		}
		f.wakeFirst()
	}
	f.mu.Unlock()
	if retire {
		p.kill(nil)
	}
}

// expire kills p if it is still idle.
func (f *Function) expire(p *process) {
	f.mu.Lock()
	i := slices.Index(f.idle, p)
	if i >= 0 {
		f.idle = slices.Delete(f.idle, i, i+1)
	}
	f.mu.Unlock()
	if i >= 0 {
		p.kill(nil)
	}
}

// forget removes a process that is gone.
func (f *Function) forget(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, p)
	f.slots--
	f.wakeFirst()
	if i := slices.Index(f.idle, p); i >= 0 {
		f.idle = slices.Delete(f.idle, i, i+1)
	}
	if p.idleTimer != nil {
		p.idleTimer.Stop()
	}
}

// Close kills all processes, fails the invocations under way with ErrClosed, and waits until nothing is left, or for
// ctx.
func (f *Function) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.wakeFirst()
	for p := range f.all {
		go p.kill(ErrClosed)
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		f.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close function %s: %w", f.cfg.Name, ctx.Err())
	}
}
