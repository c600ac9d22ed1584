package hub

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/version"
)

// roundTripper answers in the fake time of synctest, in which no real connection can be.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func clientOf(f roundTripper) *Client {
	return New(Config{Transport: f, Server: &url.URL{Scheme: "https", Host: "hub"}, Namespace: "store"})
}

// TestStreamOfSilentServer: a frozen hub must look unavailable, not like a caller that is gone. HTTP/2 returns Canceled
// for each context that was canceled.
func TestStreamOfSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clientOf(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		start := time.Now()
		if _, err := c.Stream(t.Context(), "x", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		if took := time.Since(start); took > CallTimeout {
			t.Errorf("the call took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Stream(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline of the caller: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if _, err := c.Stream(gone, "x", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("of a caller that is gone: %v", err)
		}
	})
}

// TestUserAgent: an administrator of the hub must find the requests of a version of the gateway in the audit log.
func TestUserAgent(t *testing.T) {
	var got string
	c := clientOf(func(r *http.Request) (*http.Response, error) {
		got = r.UserAgent()
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "x"}, nil)
	if err != nil || got != version.UserAgent() {
		t.Errorf("%v, the User-Agent is %q", err, got)
	}
}

// TestRetryAfter: a hub that is overloaded chooses when a request is repeated.
func TestRetryAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		after string
		want  int // requests
		least time.Duration
	}{
		"short": {"1", 3, 2 * time.Second}, "long": {"7", 1, 0}, "none": {"", 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests int
				c := clientOf(func(*http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					if requests++; requests < 3 {
						w.Header().Set("Retry-After", tt.after)
						w.WriteHeader(http.StatusTooManyRequests)
					}
					_, _ = io.WriteString(w, "{}")
					return w.Result(), nil
				})
				start := time.Now()
				err := c.Do(t.Context(), Request{Method: http.MethodPost, Path: "x"}, nil)
				if (err == nil) != (tt.want == 3) || requests != tt.want || time.Since(start) < tt.least {
					t.Errorf("%v after %d requests in %s, want %d requests", err, requests, time.Since(start), tt.want)
				}
			})
		})
	}
}

// rotatingHub publishes the key that current returns, and counts the reads.
func rotatingHub(t *testing.T, current func() string) (g *Guard, reads *atomic.Int64) {
	t.Helper()
	reads = &atomic.Int64{}
	return NewGuard(clientOf(func(*http.Request) (*http.Response, error) {
		reads.Add(1)
		w := httptest.NewRecorder()
		_, _ = io.WriteString(w, `{"keys":[{"kty":"RSA","n":"`+current()+`","e":"AQAB"}]}`)
		return w.Result(), nil
	})), reads
}

// TestIsHubAfterRotation: keys may be replaced without an overlap. The hub must not pass for another cluster then.
func TestIsHubAfterRotation(t *testing.T) {
	key := "first"
	g, _ := rotatingHub(t, func() string { return key })
	for _, key = range []string{"first", "second"} {
		own := Keys{"RSA " + key + " AQAB   ": true}
		if isHub, err := g.IsHub(t.Context(), own); !isHub || err != nil {
			t.Errorf("%s: is the hub %t, %v", key, isHub, err)
		}
		if isHub, err := g.IsHub(t.Context(), Keys{"other": true}); isHub || err != nil {
			t.Errorf("%s, other cluster: is the hub %t, %v", key, isHub, err)
		}
	}
}

// TestHubKeysAreReadTogether: a gateway of hundreds of members checks them all after its start.
func TestHubKeysAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, reads := rotatingHub(t, func() string { time.Sleep(time.Second); return "hub" })
		ended := make(chan error)
		for range 100 {
			go func() {
				_, err := g.IsHub(t.Context(), Keys{"other": true})
				ended <- err
			}()
		}
		for range 100 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := reads.Load(); n > 2 {
			t.Errorf("%d reads of the hub", n)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.IsHub(gone, Keys{"other": true}); !errors.Is(err, context.Canceled) {
			t.Errorf("of a caller that is gone: %v", err)
		}
		time.Sleep(CallTimeout) // the read of that caller ends
	})
}

// TestMissingStoreNamesItsAddress: without the context of the store, the command in the message prepares another hub.
func TestMissingStoreNamesItsAddress(t *testing.T) {
	missing := &Error{Status: metav1.Status{Code: http.StatusNotFound}}
	e := StoreErrors{Unavailable: func(err error, _ time.Duration) error { return err }}
	for store, want := range map[string]string{
		"": "clusterpass --store kubernetes:store init", "kubernetes:store,context=hub": "kubernetes:store,context=hub init",
	} {
		err := New(Config{Namespace: "store", Store: store}).Explain("get", "things/a", missing, e)
		if !errors.Is(err, missing) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
