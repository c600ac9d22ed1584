package frontdoor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/quota"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func hangingFunction(release chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-release
		}
		w.WriteHeader(http.StatusOK)
	})
}

func callerHeader(r *http.Request) string { return r.Header.Get("Caller") }

func serve(ctx context.Context, h http.Handler, caller, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("Caller", caller)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func (s *Shares) requests(caller string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.callers[caller]; own != nil {
		return own.requests
	}
	return 0
}

// One caller with several hanging clusters, or with writes that hang, must leave processes for the other callers.
func TestCallerOccupiesItsShareOnly(t *testing.T) {
	release := make(chan struct{})
	s := NewShares(2, 1, waittest.Patience)
	h := s.Limit(hangingFunction(release), callerHeader)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if w := serve(t.Context(), h, "a", "/hang"); w.Code != http.StatusOK {
				t.Errorf("a request within the queue: %d", w.Code)
			}
		})
	}
	waittest.Until(t, "two requests are in progress, and one waits", func() bool { return s.requests("a") == 3 })
	if w := serve(t.Context(), h, "a", "/"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("a request beyond the queue: %d %s, want 429 with Retry-After", w.Code, w.Body)
	}
	for _, caller := range []string{"b", ""} {
		if w := serve(t.Context(), h, caller, "/"); w.Code != http.StatusOK {
			t.Errorf("another caller: %d %s", w.Code, w.Body)
		}
	}
	close(release)
	wg.Wait()
	waittest.Until(t, "no caller is remembered", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.callers) == 0 && s.waiting == 0
	})
}

// A request that waits must end with its client, and after a time. Otherwise connections would pile up.
func TestWaitForShareEnds(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, tt := range map[string]struct {
		timeout time.Duration
		leave   bool
	}{
		"timeout":        {time.Millisecond, false},
		"client is gone": {waittest.Patience, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewShares(1, 1, tt.timeout)
			h := s.Limit(hangingFunction(release), callerHeader)
			go serve(context.WithoutCancel(t.Context()), h, "a", "/hang")
			waittest.Until(t, "a request is in progress", func() bool { return s.requests("a") == 1 })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			code := make(chan int)
			go func() {
				defer close(code)
				defer func() {
					if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
						t.Errorf("panic: %v", p)
					}
				}()
				code <- serve(ctx, h, "a", "/").Code
			}()
			want := http.StatusTooManyRequests
			if tt.leave {
				waittest.Until(t, "a request waits", func() bool { return s.requests("a") == 2 })
				leave()
				want = 0
			}
			if got := <-code; got != want {
				t.Errorf("code %d, want %d", got, want)
			}
			if n := s.requests("a"); n != 1 {
				t.Errorf("%d requests are counted, want 1", n)
			}
		})
	}
}

type stuckFunction struct{ begun, release chan struct{} }

func (f stuckFunction) Invoke(ctx context.Context, _ []byte) ([]byte, error) {
	lambda.Running(ctx).Go(func() { <-f.release })
	close(f.begun)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A client that breaks off its requests must not free its share while processes still work on them.
func TestShareCountsProcessesOfClientsThatAreGone(t *testing.T) {
	f := stuckFunction{make(chan struct{}), make(chan struct{})}
	s := NewShares(1, 1, waittest.Patience)
	h := s.Limit(lambda.Target{Invoker: f, Front: event.ALB{}}, callerHeader)
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-f.begun; leave() }()
	func() {
		defer func() { _ = recover() }() // the request is aborted
		serve(ctx, h, "a", "/")
	}()
	if n := s.requests("a"); n != 1 {
		t.Errorf("%d requests are counted while the process works, want 1", n)
	}
	close(f.release)
	waittest.Until(t, "the share is free", func() bool { return s.requests("a") == 0 })
}

// A few callers that break off requests to one hanging cluster must not occupy all processes.
func TestClusterShareCountsProcessesOfClientsThatAreGone(t *testing.T) {
	f := stuckFunction{make(chan struct{}), make(chan struct{})}
	s := NewShares(32, 64, waittest.Patience)
	front := &Server{
		Functions: map[route.Backend]http.Handler{
			route.ToProxy: s.Limit(lambda.Target{Invoker: f, Front: event.ALB{}}, callerHeader),
		},
		PerCluster: quota.New(0, 2),
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-f.begun; leave() }()
	func() {
		defer func() { _ = recover() }() // the request is aborted
		serve(ctx, front, "a", "/clusters/hanging/api/v1/pods")
	}()
	for range 1000 { // a share that does not wait for the process is free soon
		runtime.Gosched()
	}
	if n := front.PerCluster.InUse(); n != 1 {
		t.Errorf("%d requests are counted while the process works, want 1", n)
	}
	close(f.release)
	waittest.Until(t, "the share is free", func() bool { return front.PerCluster.InUse() == 0 })
}
