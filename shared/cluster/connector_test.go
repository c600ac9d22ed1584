package cluster

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestRequestsShareFirstConnection fails if requests that begin at the same time opened a connection each, also after
// the first one was closed.
func TestRequestsShareFirstConnection(t *testing.T) {
	srv := newCountingServer(t)
	m := newTrustingMember(t, srv.Server)
	burst := func() {
		var group sync.WaitGroup
		for range 30 {
			group.Go(func() {
				if err := m.Call(t.Context(), http.MethodGet, "/version", nil, &struct{}{}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	for round := range int32(3) {
		burst()
		burst()
		if got := srv.opened.Load(); got != round+1 {
			t.Errorf("round %d: %d connections, want %d", round, got, round+1)
		}
		m.Close()
	}
}

// TestFirstConnectionFails fails if requests waited for one that gets no connection, or for ever for a slow one.
func TestFirstConnectionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		for name, tt := range map[string]struct {
			fails time.Duration // until the first attempt fails
			want  time.Duration // until the others do
		}{"soon": {time.Second / 2, time.Second / 2}, "late": {time.Minute, connectPatience}} {
			var calls atomic.Int32
			c := &connector{next: roundTripper(func(*http.Request) (*http.Response, error) {
				if calls.Add(1) == 1 {
					time.Sleep(tt.fails)
				}
				return nil, refused
			})}
			var group sync.WaitGroup
			for i := range 3 {
				group.Go(func() {
					want := tt.want
					if i == 0 {
						want = tt.fails
					} else {
						time.Sleep(time.Millisecond)
						want -= time.Millisecond
					}
					began := time.Now()
					_, err := c.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
					if took := time.Since(began); !errors.Is(err, refused) || took < want || took > want+time.Millisecond {
						t.Errorf("%s: request %d: %v after %v, want %v after %v", name, i, err, took, refused, want)
					}
				})
			}
			group.Wait()
			if c.opening.Load() != nil {
				t.Errorf("%s: an attempt goes on", name)
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
