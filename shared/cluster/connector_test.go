package cluster

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// connectorOf returns the connector of a member's REST requests, which waits long enough for a busy machine.
func connectorOf(m *Member) *connector {
	c := m.REST.(*guardedTransport).next.(*connector)
	c.patience = time.Minute
	return c
}

// TestRequestsShareFirstConnection fails if requests that begin at the same time opened a connection each, also after
// the first one was closed. It also fails if they waited for the response of the first one.
func TestRequestsShareFirstConnection(t *testing.T) {
	const requests = 30
	var blocked sync.WaitGroup // until all requests of a burst have arrived
	srv := newCountingServer(t, func() {
		blocked.Done()
		blocked.Wait()
	})
	m := newTrustingMember(t, srv.Server)
	connectorOf(m)
	for round := range int32(3) {
		blocked.Add(requests)
		burst(t, m, requests)
		if got := srv.opened.Load(); got != round+1 {
			t.Errorf("round %d: %d connections, want %d", round, got, round+1)
		}
		m.Close()
	}
}

// TestRequestsByHTTP1ShareNothing fails if requests to a member with HTTP/1.1 waited for each other.
func TestRequestsByHTTP1ShareNothing(t *testing.T) {
	const requests = 5
	var blocked sync.WaitGroup
	srv := newCountingServer(t, func() {
		blocked.Done()
		blocked.Wait()
	})
	m := newGuardedMember(t, srv.URL)
	c := connectorOf(m)
	trust(m, srv.Server)
	transport := m.pools[0].(*http.Transport)
	transport.ForceAttemptHTTP2, transport.Protocols = false, new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	for range 2 {
		blocked.Add(requests)
		burst(t, m, requests)
		m.Close()
	}
	if !c.isHTTP1.Load() || srv.opened.Load() < requests {
		t.Errorf("%d connections, HTTP/1.1: %v", srv.opened.Load(), c.isHTTP1.Load())
	}
}

// burst sends requests at the same time.
func burst(t *testing.T, m *Member, requests int) {
	t.Helper()
	var group sync.WaitGroup
	for range requests {
		group.Go(func() {
			if err := m.Call(t.Context(), http.MethodGet, "/version", nil, &struct{}{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// TestFirstConnection fails if requests waited for ever for the connection of another request, or did not try
// themselves when that failed.
func TestFirstConnection(t *testing.T) {
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		first    time.Duration // until the first attempt fails
		canceled time.Duration // when the context of the first request ends; 0 means never
		own      time.Duration // when the contexts of the others end; 0 means never
		want     time.Duration // until the others fail
		calls    int32         // calls of the transport
		probe    bool          // the others are probes
	}{
		"fails":              {first: time.Second, want: time.Second, calls: 3},
		"hangs":              {first: time.Hour, want: connectPatience, calls: 3},
		"is abandoned":       {first: time.Hour, canceled: time.Second, want: time.Second, calls: 3},
		"others are no more": {first: time.Hour, own: time.Second, want: time.Second, calls: 3},
		"hangs for probes":   {first: time.Hour, canceled: time.Minute, want: probePatience, calls: 3, probe: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				c := &connector{patience: connectPatience, next: roundTripper(func(r *http.Request) (*http.Response, error) {
					if calls.Add(1) == 1 {
						select {
						case <-time.After(tt.first):
						case <-r.Context().Done():
						}
					}
					return nil, refused
				})}
				send := func(ctx context.Context, ends time.Duration) time.Duration {
					if ends > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, ends)
						defer cancel()
					}
					began := time.Now()
					_, err := c.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
					if !errors.Is(err, refused) {
						t.Error(err)
					}
					return time.Since(began)
				}
				var group sync.WaitGroup
				group.Go(func() { send(t.Context(), tt.canceled) })
				synctest.Wait()
				others := t.Context()
				if tt.probe {
					others = AsProbe(others)
				}
				for range 2 {
					group.Go(func() {
						if got := send(others, tt.own); got != tt.want || calls.Load() > tt.calls {
							t.Errorf("it fails after %v, want %v; %d calls", got, tt.want, calls.Load())
						}
					})
				}
				group.Wait()
				if c.opening.Load() != nil || calls.Load() != tt.calls {
					t.Errorf("%d calls, want %d; an attempt goes on: %v", calls.Load(), tt.calls, c.opening.Load() != nil)
				}
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
