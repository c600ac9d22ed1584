// Package lambda runs functions on one machine as AWS Lambda does. A [Function] runs a bootstrap binary in processes of
// its own, against the Lambda Runtime API.
//
// It behaves like AWS in these respects:
//   - A process handles one invocation at a time. Invocations beyond the limit of processes are throttled.
//   - A process that misses the deadline of an invocation is killed.
//   - A process is stopped (SIGSTOP) while it waits for the next event.
//   - An invocation continues after its caller has gone.
//
// Unlike on AWS, memory is not limited, the file system is the machine's, and nothing isolates the process. Close kills
// the process groups of a Function. On Linux, the kernel kills them if this process dies.
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

// The payload limits of Lambda in bytes, as in its error messages.
const (
	RequestLimit  = 6 << 20
	ResponseLimit = 6<<20 + 100
)

// Invoker runs one invocation, in a process (Function) or in this one (Inline). It is safe for concurrent use.
type Invoker interface {
	Invoke(ctx context.Context, payload []byte) ([]byte, error)
}

// Errors of Lambda itself. Errors of the function are of type *FunctionError.
var (
	ErrThrottled       = errors.New("TooManyRequestsException: rate exceeded (429)")
	ErrRequestTooLarge = errors.New("RequestTooLargeException: the request payload is larger than 6 MB (413)")
	ErrClosed          = errors.New("the function is closed")
)

// FunctionError is a failure that the runtime reported, or Lambda itself (Runtime.ExitError, Sandbox.Timedout).
type FunctionError struct {
	Type, Message string
}

func (e *FunctionError) Error() string { return e.Type + ": " + e.Message }

// Config of a Function.
type Config struct {
	Name      string            // AWS_LAMBDA_FUNCTION_NAME; required
	Bootstrap string            // path of the binary; required. Its directory is the working directory
	Env       map[string]string // added to Lambda's variables; reserved names are errors
	Region    string            // default "us-east-1"
	MemoryMB  int               // passed to the function, not enforced; default 128

	Timeout        time.Duration // of an invocation; default 30 s
	InitTimeout    time.Duration // from start to the first request for an event; default 10 s
	MaxConcurrency int           // processes; default 10
	MaxQueue       int           // invocations that wait for a process; default 0, as AWS has no such queue
	QueueTimeout   time.Duration // maximum wait for a process; default 10 s

	MaxIdle        time.Duration // an idle process is killed after it; 0 means never
	MaxInvocations int           // a process is killed after that many; 0 means never
	NeverStop      bool          // leaves idle processes running

	// Output gets the output of processes, each line with the function's name and the process id. nil discards it.
	Output io.Writer
}

// Function is a function and its processes. It is safe for concurrent use.
type Function struct {
	cfg Config
	env []string

	out sync.Mutex // guards cfg.Output

	mu     sync.Mutex
	closed bool
	all    map[*process]struct{}
	idle   []*process      // waiting for an event, the most recently used last
	slots  int             // processes that run or are about to start
	queue  []chan struct{} // invocations that wait for a process, the oldest first
	wg     sync.WaitGroup  // goroutines; added to under mu while not closed
}

// NewFunction validates cfg. The first invocation starts the first process. The caller must Close the Function.
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

type invocation struct {
	id, trace string
	payload   []byte
	setOnce   sync.Once
	result    chan result   // buffers one result
	finished  chan struct{} // closed when the process requests the next event, or has ended
}

type result struct {
	payload []byte
	err     error
}

func (inv *invocation) setResult(r result) { inv.setOnce.Do(func() { inv.result <- r }) }

// Invoke runs one invocation and returns the whole response. It continues after the end of ctx. Errors are a
// *FunctionError, ErrThrottled, ErrRequestTooLarge, ErrClosed, or that of ctx.
func (f *Function) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	r, err := f.invoke(ctx, payload)
	return r.payload, err
}

type runningKey struct{}

// WithRunning returns a context for invocations. running counts each of them until its process is free again, which can
// be after ctx has ended.
func WithRunning(ctx context.Context, running *sync.WaitGroup) context.Context {
	return context.WithValue(ctx, runningKey{}, running)
}

// Running returns the WaitGroup of WithRunning, for Invokers. Without one it returns a new WaitGroup.
func Running(ctx context.Context) *sync.WaitGroup {
	if running, ok := ctx.Value(runningKey{}).(*sync.WaitGroup); ok {
		return running
	}
	return &sync.WaitGroup{}
}

// idleGrace bounds how long a response waits until its process is idle, and so free for the caller's next request.
const idleGrace = 50 * time.Millisecond

func (f *Function) invoke(ctx context.Context, payload []byte) (result, error) {
	if len(payload) > RequestLimit {
		return result{}, ErrRequestTooLarge
	}
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	inv := &invocation{
		id: uuid.NewString(), trace: event.TraceID() + ";Sampled=0", payload: payload,
		result: make(chan result, 1), finished: make(chan struct{}),
	}
	p, err := f.acquire(ctx)
	if err != nil {
		return result{}, err
	}
	Running(ctx).Go(func() { <-inv.finished })
	go func() {
		defer f.wg.Done()
		f.deliver(p, inv)
	}()
	select {
	case r := <-inv.result:
		t := time.NewTimer(idleGrace)
		defer t.Stop()
		select {
		case <-inv.finished:
		case <-t.C:
		case <-ctx.Done():
		}
		return r, r.err
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
}

// tryAcquire returns an idle process, or nil if it has reserved a slot for a new one. It adds to wg. mu must be locked.
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

// deliver passes inv to a process. If a process dies before it gets the event, another one gets it.
func (f *Function) deliver(p *process, inv *invocation) {
	for {
		var err error
		if p == nil {
			if p, err = f.start(inv.id); err != nil {
				inv.setResult(result{err: err})
				close(inv.finished)
				return
			}
		}
		if p.offer(inv) {
			return
		}
		if p, err = f.acquire(context.Background()); err != nil { // QueueTimeout bounds it
			inv.setResult(result{err: err})
			close(inv.finished)
			return
		}
		f.wg.Done() // this goroutine is counted already
	}
}

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

func (f *Function) remove(p *process) {
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

// Close kills all processes, and fails running invocations with ErrClosed. It blocks until they end, or ctx does.
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
