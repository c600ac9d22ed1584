package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// roundTripper answers in the fake time of synctest, in which no real connection can be.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func storeOf(f roundTripper) *Store {
	return New(Config{Client: hub.New(hub.Config{
		Transport: f, Server: &url.URL{Scheme: "https", Host: "hub"}, Namespace: "store",
	})})
}

func answer(code int, body any) *http.Response {
	w := httptest.NewRecorder()
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
	return w.Result()
}

func silence(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

func stored(key string, rev int) record {
	r := newRecord(key, nil, 0)
	r.Metadata.ResourceVersion = fmt.Sprint(rev)
	return r
}

// TestWriteOfUnknownOutcomeIsAnnounced: other replicas accepted a deleted pass for 30 s if the response to the deletion
// was lost, or if its caller left.
func TestWriteOfUnknownOutcomeIsAnnounced(t *testing.T) {
	const pass = "passes/ann"
	for name, tt := range map[string]struct {
		respond roundTripper // to the deletion, which the hub makes
		leave   bool
		want    error
		silent  int // the announcements without a response
		patches int64
	}{
		"lost response":    {respond: silence, want: objects.ErrUnavailable, patches: 1},
		"caller left":      {respond: silence, leave: true, want: context.Canceled, patches: 1},
		"internal error":   {respond: errorOf(http.StatusInternalServerError), want: objects.ErrUnavailable, patches: 1},
		"conflict":         {respond: errorOf(http.StatusConflict), want: objects.ErrConflict, patches: 0},
		"the hub is gone":  {respond: silence, want: objects.ErrUnavailable, silent: 9, patches: 2},
		"everyone is gone": {respond: silence, leave: true, want: context.Canceled, silent: 9, patches: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var patches atomic.Int64
				s := storeOf(func(r *http.Request) (*http.Response, error) {
					switch r.Method {
					case http.MethodGet:
						return answer(http.StatusOK, stored(pass, 1)), nil
					case http.MethodDelete:
						return tt.respond(r)
					}
					if patches.Add(1) <= int64(tt.silent) {
						return silence(r)
					}
					return answer(http.StatusOK, stored("", 3)), nil
				})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if tt.leave {
					time.AfterFunc(time.Second, leave)
				}
				start := time.Now()
				if _, err := s.Delete(ctx, pass, 1); !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if got := patches.Load(); got != tt.patches {
					t.Errorf("%d announcements, want %d", got, tt.patches)
				}
				if took := time.Since(start); took > hub.CallTimeout || tt.leave && took > time.Second+announceTimeout {
					t.Errorf("the deletion took %s", took)
				}
			})
		})
	}
}

func errorOf(code int) roundTripper {
	return func(*http.Request) (*http.Response, error) { return answer(code, nil), nil }
}

// TestSlowWriteEnds: a caller waits at most 10 s, also if the read, the write and the announcement are slow.
func TestSlowWriteEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOf(func(r *http.Request) (*http.Response, error) {
			time.Sleep(3900 * time.Millisecond)
			if r.Context().Err() != nil {
				return nil, r.Context().Err()
			}
			return answer(http.StatusOK, stored("things/a", 1)), nil
		})
		start := time.Now()
		if _, err := s.Update(t.Context(), "things/a", nil, 1); !errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		// The transport above notices the deadline late.
		if took := time.Since(start); took > 12*time.Second {
			t.Errorf("the update took %s", took)
		}
	})
}

// TestReadersShareFailure: each watch of a frozen hub must end soon, and not after those of all other watches.
func TestReadersShareFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOf(silence)
		start, ended := time.Now(), make(chan error)
		for range 50 {
			go func() {
				_, err := s.recentAnnouncement(t.Context(), time.Second)
				ended <- err
			}()
		}
		for range 50 {
			if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(start); took > hub.CallTimeout {
			t.Errorf("the readers took %s", took)
		}
		// The reader that waits must not get the failure of one whose caller left.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			_, err := s.recentAnnouncement(ctx, time.Second)
			ended <- err
		}()
		synctest.Wait()
		start = time.Now()
		_, err := s.recentAnnouncement(t.Context(), time.Second)
		if first := <-ended; first == nil || err == nil || time.Since(start) < 5*time.Second {
			t.Errorf("%v, %v after %s", first, err, time.Since(start))
		}
	})
}

// TestChangesPausesAfterEnd: an API server that ends each watch at once must not be asked thousands of times.
func TestChangesPausesAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := 0
		s := storeOf(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") != "" {
				watches++
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
			}
			list := recordList{Items: []record{stored("", 9)}}
			list.Metadata.ResourceVersion = "9"
			return answer(http.StatusOK, list), nil
		})
		if _, _, err := s.Changes(t.Context(), 5, 10); !errors.Is(err, objects.ErrUnavailable) || watches > 100 {
			t.Errorf("%v after %d watches", err, watches)
		}
	})
}
