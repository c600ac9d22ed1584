package lambda

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

var bootstrap string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "function")
	if err != nil {
		panic(err)
	}
	bootstrap = filepath.Join(dir, "bootstrap")
	args := []string{"build", "-tags", "lambda.norpc", "-o", bootstrap, "./testdata/function"}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the test function: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if err := leaktest.Find(func() {}); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "the tests leave goroutines:", err)
		code = 1
	}
	os.Exit(code)
}

func newFunction(t *testing.T, cfg Config) *Function {
	t.Helper()
	// go test repeats a test if a file that the test itself opened has changed. TestMain is too early.
	if _, err := os.Stat("testdata/function/main.go"); err != nil {
		t.Fatal(err)
	}
	cfg.Name, cfg.Bootstrap = "proxy", bootstrap
	cfg.InitTimeout, cfg.Timeout = cmp.Or(cfg.InitTimeout, waittest.Patience), cmp.Or(cfg.Timeout, waittest.Patience)
	f, err := NewFunction(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
		defer cancel()
		if err := f.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return f
}

func restEvent(t *testing.T, uri string) []byte {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RequestURI = uri
	b, err := event.REST{}.Event(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func call(t *testing.T, f *Function, uri string) (int, string) {
	t.Helper()
	b, err := f.Invoke(t.Context(), restEvent(t, uri))
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	if err := (event.REST{}).Answer(rec, httptest.NewRequest(http.MethodGet, "/", nil), b); err != nil {
		t.Fatal(err)
	}
	return rec.Code, rec.Body.String()
}

type identity struct {
	PID                        int
	Env                        []string
	Dir, RequestID, ARN, Trace string
	Left                       float64
}

func identify(t *testing.T, f *Function) identity {
	t.Helper()
	waitIdle(t, f)
	var id identity
	_, body := call(t, f, "/who")
	if err := json.Unmarshal([]byte(body), &id); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return id
}

// A process may request its next event later than idleGrace after its response.
func waitIdle(t *testing.T, f *Function) {
	t.Helper()
	waittest.Until(t, "every process is idle", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.slots == len(f.idle)
	})
}

func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return string(b[bytes.LastIndexByte(b, ')')+2])
}

func isGone(pid int) func() bool {
	return func() bool { s := state(pid); return s == "" || s == "Z" || s == "X" }
}

func exists(path ...string) func() bool {
	return func() bool { _, err := os.Stat(filepath.Join(path...)); return err == nil }
}

func TestInvocation(t *testing.T) {
	t.Setenv("SECRET_OF_THE_CALLER", "x")
	f := newFunction(t, Config{Env: map[string]string{"MINE": "1", "PATH": "/bin"}, Region: "eu-central-1", MemoryMB: 256,
		Timeout: time.Minute})
	first := identify(t, f)
	second := identify(t, f)
	if first.PID != second.PID {
		t.Errorf("processes %d and %d for calls one after the other", first.PID, second.PID)
	}
	if first.RequestID == second.RequestID || len(first.RequestID) != 36 {
		t.Errorf("request ids %s, %s", first.RequestID, second.RequestID)
	}
	if first.ARN != "arn:aws:lambda:eu-central-1:123456789012:function:proxy" ||
		!strings.HasPrefix(first.Trace, "Root=1-") {
		t.Errorf("ARN %s, trace %s", first.ARN, first.Trace)
	}
	if first.Left > 60 || first.Left < 30 {
		t.Errorf("%v s are left of a minute", first.Left)
	}
	if first.Dir != filepath.Dir(bootstrap) {
		t.Errorf("working directory %s", first.Dir)
	}
	var names []string
	for _, kv := range first.Env {
		k, _, _ := strings.Cut(kv, "=")
		names = append(names, k)
	}
	slices.Sort(names)
	want := []string{
		"AWS_DEFAULT_REGION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_VERSION",
		"AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME", "AWS_LAMBDA_LOG_STREAM_NAME", "AWS_LAMBDA_RUNTIME_API",
		"AWS_REGION",
		"LAMBDA_RUNTIME_DIR", "LAMBDA_TASK_ROOT", "LANG", "MINE", "PATH", "TZ", "_HANDLER", "_X_AMZN_TRACE_ID",
	}
	if !slices.Equal(names, want) {
		t.Errorf("environment %v\nwant        %v", names, want)
	}
	for _, kv := range []string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256", "AWS_REGION=eu-central-1", "PATH=/bin",
		"AWS_LAMBDA_FUNCTION_NAME=proxy"} {
		if !slices.Contains(first.Env, kv) {
			t.Errorf("environment lacks %s", kv)
		}
	}
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no name":        {Bootstrap: bootstrap},
		"no bootstrap":   {Name: "x"},
		"missing":        {Name: "x", Bootstrap: bootstrap + "x"},
		"directory":      {Name: "x", Bootstrap: filepath.Dir(bootstrap)},
		"not executable": {Name: "x", Bootstrap: "lambda_test.go"},
		"reserved":       {Name: "x", Bootstrap: bootstrap, Env: map[string]string{"AWS_REGION": "x"}},
		"reserved api":   {Name: "x", Bootstrap: bootstrap, Env: map[string]string{"AWS_LAMBDA_RUNTIME_API": "x"}},
	} {
		if _, err := NewFunction(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Background work in functions must stop between events, as on AWS.
func TestStopped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	never := newFunction(t, Config{NeverStop: true}) // the control
	running := identify(t, never).PID
	waitIdle(t, never)
	f := newFunction(t, Config{})
	pid := identify(t, f).PID
	for range 20 {
		waittest.Until(t, "an idle process is stopped", func() bool { return state(pid) == "T" })
		if got := identify(t, f).PID; got != pid {
			t.Fatalf("process %d, was %d", got, pid)
		}
	}
	if s := state(running); s == "T" || s == "" {
		t.Errorf("the process that is never stopped is in state %q", s)
	}
}

func TestConcurrency(t *testing.T) {
	const n = 4
	dir := t.TempDir()
	f := newFunction(t, Config{MaxConcurrency: n, Env: map[string]string{"WAIT_DIR": dir}})
	for round := range 2 { // cold, then warm
		waitIdle(t, f)
		var wg sync.WaitGroup
		pids := make(chan string, n)
		for i := range n {
			name := fmt.Sprintf("%d-%d", round, i)
			wg.Go(func() {
				_, pid := call(t, f, "/wait?name="+name)
				pids <- pid
			})
			waittest.Until(t, "an invocation runs beside the others", exists(dir, name+".begun"))
		}
		if _, err := f.Invoke(t.Context(), restEvent(t, "/who")); !errors.Is(err, ErrThrottled) {
			t.Errorf("one more invocation: %v", err)
		}
		for i := range n {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d-%d.go", round, i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		close(pids)
		seen := map[string]bool{}
		for pid := range pids {
			seen[pid] = true
		}
		if len(seen) != n {
			t.Errorf("%d processes for %d invocations", len(seen), n)
		}
	}
	identify(t, f) // a process is free again
}

// TestMany: no response may be lost or mixed up while processes come and go.
func TestMany(t *testing.T) {
	f := newFunction(t, Config{MaxConcurrency: 8, MaxIdle: 5 * time.Millisecond, MaxInvocations: 7})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				want := fmt.Sprintf("%d-%d", g, i)
				event := restEvent(t, "/echo?x="+want)
				var b []byte
				err := waittest.Poll(t.Context(), func(ctx context.Context) error {
					var err error
					if b, err = f.Invoke(ctx, event); errors.Is(err, ErrThrottled) {
						return err // a process is dying, its slot is not free yet
					} else if err != nil {
						t.Errorf("%s: %v", want, err)
					}
					return nil
				})
				if err != nil || !bytes.Contains(b, []byte(`"/echo?x=`+want+`"`)) {
					t.Errorf("%s: %s, %v", want, b, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestTimeout(t *testing.T) {
	t.Parallel() // it mostly waits
	f := newFunction(t, Config{Timeout: 15 * time.Second})
	pid := identify(t, f).PID
	_, err := f.Invoke(t.Context(), restEvent(t, "/sleep"))
	var fe *FunctionError
	if !errors.As(err, &fe) || fe.Type != "Sandbox.Timedout" ||
		!strings.HasSuffix(fe.Message, "Error: Task timed out after 15.00 seconds") {
		t.Errorf("got %v", err)
	}
	waittest.Until(t, "the process is killed", isGone(pid))
	if again := identify(t, f).PID; again == pid {
		t.Error("the process was used again")
	}
	for end := time.Now().Add(waittest.Patience); ; {
		b, err := f.Invoke(t.Context(), restEvent(t, "/deadline"))
		if errors.As(err, &fe) && fe.Type == "Sandbox.Timedout" && time.Now().Before(end) {
			continue // the machine was too busy for an answer within half a second
		}
		if err != nil || !bytes.Contains(b, []byte(`"statusCode":504,`)) {
			t.Errorf("a handler that minds its deadline answers %s, %v", b, err)
		}
		break
	}
}

func TestCrashes(t *testing.T) {
	for name, tt := range map[string]struct {
		uri, init      string
		wantType, want string
	}{
		"exit":         {"/exit", "", "Runtime.ExitError", "Runtime exited with error: exit status 3"},
		"exit 0":       {"/exit0", "", "Runtime.ExitError", "Runtime exited without providing a reason"},
		"exit in init": {"/who", "exit", "Runtime.ExitError", "Runtime exited with error: exit status 7"},
		"init error":   {"/who", "error", "Function.NoConfig", "no configuration"},
		"init timeout": {"/who", "sleep", "Sandbox.Timedout", "Init timed out after 0.50 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{MaxConcurrency: 1, Env: map[string]string{"INIT": tt.init}}
			if tt.init == "sleep" {
				cfg.InitTimeout = 500 * time.Millisecond
			}
			f := newFunction(t, cfg)
			for range 3 { // the slot is free each time
				var fe *FunctionError
				_, err := f.Invoke(t.Context(), restEvent(t, tt.uri))
				if !errors.As(err, &fe) || fe.Type != tt.wantType || !strings.HasSuffix(fe.Message, tt.want) {
					t.Errorf("got %v", err)
				}
			}
			if tt.init == "" {
				identify(t, f)
			}
		})
	}
	t.Run("panic", func(t *testing.T) {
		f := newFunction(t, Config{})
		pid := identify(t, f).PID
		if code, body := call(t, f, "/panic"); code != 500 || !strings.Contains(body, `"kind":"Status"`) ||
			strings.Contains(body, "boom") {
			t.Errorf("got %d %s", code, body)
		}
		if again := identify(t, f).PID; again != pid {
			t.Error("the process did not survive")
		}
	})
	t.Run("no event", func(t *testing.T) {
		f := newFunction(t, Config{})
		var fe *FunctionError
		if _, err := f.Invoke(t.Context(), []byte(`{}`)); !errors.As(err, &fe) ||
			!strings.Contains(fe.Message, "not an event") {
			t.Errorf("got %v", err)
		}
		identify(t, f)
	})
	t.Run("bad binary", func(t *testing.T) {
		bad := filepath.Join(t.TempDir(), "bootstrap")
		if err := os.WriteFile(bad, []byte("no binary"), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := NewFunction(Config{Name: "bad", Bootstrap: bad})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close(t.Context())
		var fe *FunctionError
		if _, err := f.Invoke(t.Context(), []byte(`{}`)); !errors.As(err, &fe) || fe.Type != "Runtime.InvalidEntrypoint" {
			t.Errorf("got %v", err)
		}
	})
}

// TestIdleDeath: the death of an idle process must not fail an invocation.
func TestIdleDeath(t *testing.T) {
	f := newFunction(t, Config{MaxConcurrency: 1})
	t.Run("noticed", func(t *testing.T) {
		pid := identify(t, f).PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the dead process is forgotten", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.all) == 0
		})
		if again := identify(t, f).PID; again == pid {
			t.Fatal("a dead process answered")
		}
	})
	t.Run("not noticed", func(t *testing.T) { // dies after it was chosen
		pid := identify(t, f).PID
		waitIdle(t, f)
		p, err := f.acquire(t.Context())
		if err != nil || p == nil {
			t.Fatal(p, err)
		}
		p.kill(nil)
		<-p.exited
		inv := &invocation{id: "x", payload: restEvent(t, "/who"), result: make(chan result, 1),
			finished: make(chan struct{})}
		f.deliver(p, inv)
		f.wg.Done()
		if r := <-inv.result; r.err != nil || bytes.Contains(r.payload, fmt.Appendf(nil, `\"pid\":%d,`, pid)) {
			t.Errorf("got %s, %v", r.payload, r.err)
		}
	})
}

func TestRetirement(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		f := newFunction(t, Config{MaxIdle: 50 * time.Millisecond})
		pid := identify(t, f).PID
		waittest.Until(t, "the idle process is killed", isGone(pid))
		if again := identify(t, f).PID; again == pid {
			t.Error("it was used again")
		}
	})
	for name, tt := range map[string]struct {
		cfg  Config
		want []bool // the process is the one before
	}{
		"invocations": {Config{MaxInvocations: 2}, []bool{true, false, true, false}},
		"always":      {Config{MaxInvocations: 1}, []bool{false, false, false}},
		"never":       {Config{}, []bool{true, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFunction(t, tt.cfg)
			last := identify(t, f).PID
			for i, want := range tt.want {
				pid := identify(t, f).PID
				if (pid == last) != want {
					t.Errorf("invocation %d: process %d after %d", i+2, pid, last)
				}
				last = pid
			}
		})
	}
}

func TestPayloadLimits(t *testing.T) {
	f := newFunction(t, Config{Env: map[string]string{"MODE": "raw"}})
	if _, err := f.Invoke(t.Context(), make([]byte, RequestLimit+1)); !errors.Is(err, ErrRequestTooLarge) {
		t.Errorf("request: %v", err)
	}
	b, err := f.Invoke(t.Context(), []byte(strconv.Itoa(ResponseLimit)))
	if err != nil || len(b) != ResponseLimit {
		t.Errorf("the largest response: %d, %v", len(b), err)
	}
	var fe *FunctionError
	if _, err := f.Invoke(t.Context(), []byte(strconv.Itoa(ResponseLimit+1))); !errors.As(err, &fe) ||
		fe.Type != "Function.ResponseSizeTooLarge" {
		t.Errorf("a larger response: %v", err)
	}
	spaces := append(bytes.Repeat([]byte(" "), RequestLimit-1), '5')
	if b, err := f.Invoke(t.Context(), spaces); err != nil || string(b) != "11111" {
		t.Errorf("the largest request: %s, %v", b, err)
	}
}

// TestCallerLeaves: an invocation must continue without its caller, and its process must become usable again.
func TestCallerLeaves(t *testing.T) {
	dir := t.TempDir()
	f := newFunction(t, Config{MaxConcurrency: 1, Env: map[string]string{"WAIT_DIR": dir}})
	pid := identify(t, f).PID
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	var running sync.WaitGroup
	go func() {
		_, err := f.Invoke(WithRunning(ctx, &running), restEvent(t, "/wait?name=a"))
		returned <- err
	}()
	waittest.Until(t, "the invocation has begun", exists(dir, "a.begun"))
	cancel()
	if err := <-returned; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	finished := make(chan struct{})
	go func() { running.Wait(); close(finished) }()
	select {
	case <-finished:
		t.Error("the invocation is over for WithRunning while its process works")
	default:
	}
	if err := os.WriteFile(filepath.Join(dir, "a.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the invocation is done", exists(dir, "a.done"))
	<-finished
	waittest.Until(t, "the process is free", func() bool {
		b, err := f.Invoke(t.Context(), restEvent(t, "/who"))
		if err == nil && !bytes.Contains(b, []byte(strconv.Itoa(pid))) {
			t.Errorf("another process than %d: %s", pid, b)
		}
		return err == nil
	})
	if _, err := f.Invoke(ctx, restEvent(t, "/who")); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left before: %v", err)
	}
}

func TestClose(t *testing.T) {
	dir := t.TempDir()
	f := newFunction(t, Config{Env: map[string]string{"WAIT_DIR": dir}})
	idle := identify(t, f).PID
	_, child := call(t, f, "/spawn")
	childPID, err := strconv.Atoi(child)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := f.Invoke(t.Context(), restEvent(t, "/wait?name=a"))
		failed <- err
	}()
	waittest.Until(t, "the invocation has begun", exists(dir, "a.begun"))
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	done := make(chan error)
	go func() { done <- f.Close(ctx) }()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("the invocation under way: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !isGone(idle)() {
		t.Error("a process is left")
	}
	waittest.Until(t, "what a process started is killed", isGone(childPID))
	if _, err := f.Invoke(t.Context(), restEvent(t, "/who")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCloseWhileStarting closes a function at each stage of the start of a process.
func TestCloseWhileStarting(t *testing.T) {
	for i := range 20 {
		f := newFunction(t, Config{})
		failed := make(chan error, 1)
		go func() {
			_, err := f.Invoke(t.Context(), restEvent(t, "/who"))
			failed <- err
		}()
		for stage := i % 5; stage > startStage(f) && len(failed) == 0; { // without a pause: a start lasts milliseconds
			runtime.Gosched()
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-failed; err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}

// startStage returns how far the start of a function's first process is.
func startStage(f *Function) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots == 0 {
		return 0
	}
	for p := range f.all {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.waiting || p.cur != nil || p.served > 0: // it has requested an event
			return 4
		case p.pid > 0:
			return 3
		}
		return 2
	}
	return 1
}

func TestOutput(t *testing.T) {
	var out waittest.Buffer
	f := newFunction(t, Config{Output: &out, MaxInvocations: 1})
	pid := identify(t, f).PID
	call(t, f, "/print")
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"] to stdout\n", "] to stderr, long ", "] unfinished\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text[:min(200, len(text))], want)
		}
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "[proxy ") || strings.Contains(line, fmt.Sprintf("[proxy %d]", pid)) {
			t.Errorf("line %.100q", line)
		}
	}
}
