package lambda

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func blockFunction(t *testing.T, f *Function, dir string) (release func()) {
	t.Helper()
	var wg sync.WaitGroup
	names := make([]string, f.cfg.MaxConcurrency)
	for i := range names {
		names[i] = fmt.Sprintf("block-%d", i)
		wg.Go(func() {
			if _, err := f.Invoke(t.Context(), restEvent(t, "/wait?name="+names[i])); err != nil {
				t.Error(err)
			}
		})
		waittest.Until(t, "an invocation occupies a process", exists(dir, names[i]+".begun"))
	}
	return func() {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name+".go"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	}
}

func wantAnswer(t *testing.T, f *Function) {
	t.Helper()
	if _, err := f.Invoke(t.Context(), restEvent(t, "/who")); err != nil {
		t.Error(err)
	}
}

func queueLength(f *Function) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue)
}

// Otherwise one slow cluster occupies the processes, and all other requests fail with 502.
func TestInvocationsWaitInBoundedQueue(t *testing.T) {
	dir := t.TempDir()
	f := newFunction(t, Config{
		MaxConcurrency: 2, MaxQueue: 3, QueueTimeout: waittest.Patience, Env: map[string]string{"WAIT_DIR": dir},
	})
	release := blockFunction(t, f, dir)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { wantAnswer(t, f) })
	}
	waittest.Until(t, "three invocations wait", func() bool { return queueLength(f) == 3 })
	if _, err := f.Invoke(t.Context(), restEvent(t, "/who")); !errors.Is(err, ErrThrottled) {
		t.Errorf("one more invocation: %v, want ErrThrottled", err)
	}
	w := httptest.NewRecorder()
	Target{Invoker: f, Front: event.ALB{}}.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/who", nil))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more request: %d %s, want 429 with Retry-After", w.Code, w.Body)
	}
	release()
	wg.Wait()
	if n := queueLength(f); n != 0 {
		t.Errorf("%d invocations are still in the queue", n)
	}
}

// A client that leaves, or waits for too long, must not keep its place: the next would never be woken.
func TestQueueForgetsInvocationsThatLeave(t *testing.T) {
	dir := t.TempDir()
	f := newFunction(t, Config{
		MaxConcurrency: 1, MaxQueue: 2, QueueTimeout: waittest.Patience, Env: map[string]string{"WAIT_DIR": dir},
	})
	release := blockFunction(t, f, dir)
	isGone, leave := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		_, err := f.Invoke(isGone, restEvent(t, "/who"))
		returned <- err
	}()
	waittest.Until(t, "an invocation waits", func() bool { return queueLength(f) == 1 })
	stays := make(chan struct{})
	go func() { defer close(stays); wantAnswer(t, f) }()
	waittest.Until(t, "a second invocation waits", func() bool { return queueLength(f) == 2 })
	leave()
	if err := <-returned; !errors.Is(err, context.Canceled) {
		t.Errorf("the invocation that left: %v", err)
	}
	release()
	<-stays
}

// Without a limit in time, clients would wait for a function that hangs until their own deadlines.
func TestQueueHasDeadline(t *testing.T) {
	dir := t.TempDir()
	f := newFunction(t, Config{
		MaxConcurrency: 1, MaxQueue: 1, QueueTimeout: time.Millisecond, Env: map[string]string{"WAIT_DIR": dir},
	})
	release := blockFunction(t, f, dir)
	if _, err := f.Invoke(t.Context(), restEvent(t, "/who")); !errors.Is(err, ErrThrottled) {
		t.Errorf("after QueueTimeout: %v, want ErrThrottled", err)
	}
	release()
	waittest.Until(t, "the process is idle", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.idle) == 1
	})
	wantAnswer(t, f)
}
