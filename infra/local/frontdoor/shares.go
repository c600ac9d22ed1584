package frontdoor

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Shares limits the processes of one function that each caller occupies. Further requests of that caller wait in a
// queue of its own, and get 429 when the queue is full or the wait too long. It is safe for concurrent use.
type Shares struct {
	max, maxQueue, maxWaiting int
	timeout                   time.Duration

	mu      sync.Mutex
	callers map[string]*share // of requests in progress and waiting requests
	waiting int               // requests of all callers
}

type share struct {
	slots    chan struct{} // an element for each request in progress
	requests int           // in progress, or waiting
}

// NewShares returns Shares of at most processes for one caller. At most queue requests of one caller wait, and four
// times as many of all callers, each for timeout at most.
func NewShares(processes, queue int, timeout time.Duration) *Shares {
	return &Shares{
		max: processes, maxQueue: queue, maxWaiting: 4 * queue, timeout: timeout, callers: map[string]*share{},
	}
}

// Limit wraps a function. key identifies the caller of a request; requests with the key "" are not limited.
func (s *Shares) Limit(function http.Handler, key func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := key(r)
		if caller == "" {
			function.ServeHTTP(w, r)
			return
		}
		release, err := s.acquire(r.Context(), caller)
		switch {
		case r.Context().Err() != nil:
			if err == nil {
				release()
			}
			panic(http.ErrAbortHandler) // to return would mean a response of 200
		case err != nil:
			slog.WarnContext(r.Context(), "a request exceeds the share of its caller", "path", r.URL.Path, "error", err)
			status.Write(w, err)
			return
		}
		serveUntilIdle(function, w, r, release)
	})
}

// serveUntilIdle serves a request, and calls release when no process works for the request any more. That can be long
// after the client has gone. Calls may be nested: all of them wait for the same processes.
func serveUntilIdle(function http.Handler, w http.ResponseWriter, r *http.Request, release func()) {
	running := lambda.Running(r.Context())
	defer func() {
		go func() { // ends with the invocation, which has a deadline
			running.Wait()
			release()
		}()
	}()
	function.ServeHTTP(w, r.WithContext(lambda.WithRunning(r.Context(), running)))
}

// acquire blocks until the caller may occupy one more process. Call release when that process is free.
func (s *Shares) acquire(ctx context.Context, caller string) (release func(), err error) {
	own, begins := s.enter(caller)
	if own == nil {
		return nil, s.newThrottledError()
	}
	if !begins {
		defer s.endWait()
		timeout := time.NewTimer(s.timeout)
		defer timeout.Stop()
		select {
		case own.slots <- struct{}{}:
		case <-timeout.C:
			err = s.newThrottledError()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		s.leave(caller, own)
		return nil, err
	}
	return func() {
		<-own.slots
		s.leave(caller, own)
	}, nil
}

// enter counts a request. It returns nil if the queue is full, and begins is false if the request must wait.
func (s *Shares) enter(caller string) (own *share, begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own = s.callers[caller]
	if own == nil {
		own = &share{slots: make(chan struct{}, s.max)}
		s.callers[caller] = own
	}
	select {
	case own.slots <- struct{}{}:
		own.requests++
		return own, true
	default:
	}
	if own.requests >= s.max+s.maxQueue || s.waiting >= s.maxWaiting {
		return nil, false
	}
	s.waiting++
	own.requests++
	return own, false
}

func (s *Shares) endWait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

func (s *Shares) leave(caller string, own *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(s.callers, caller)
	}
}

const retryAfter = time.Second

func (s *Shares) newThrottledError() error {
	const text = "the request was refused: you have %d requests in one function, the limit for one caller; " +
		"try again in %s"
	err := status.New(status.TooManyRequests, "", text, s.max, retryAfter)
	err.RetryAfter = retryAfter
	return err
}
