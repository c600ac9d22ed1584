package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// TestDecoding holds: few large bodies are decoded at once; small ones, and calls that have ended, do not wait.
func TestDecoding(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := &ask{f: New(Config{}), r: httptest.NewRequest("POST", "/", nil).WithContext(ctx)}
	begun, end := make(chan struct{}, 3*maxDecoding), make(chan struct{})
	var all sync.WaitGroup
	for range 3 * maxDecoding {
		all.Go(func() {
			_, err := decoded(q, smallBody+1, "a", func() (int, error) {
				begun <- struct{}{}
				<-end
				return 0, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range maxDecoding {
		<-begun
	}
	select {
	case <-begun:
		t.Error("more are decoded than may be")
	case <-time.After(50 * time.Millisecond):
	}
	if n, err := decoded(q, smallBody, "a", func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("a small one is %d, %v", n, err)
	}
	gone, left := context.WithCancel(t.Context())
	left()
	if _, err := decoded(&ask{f: q.f, r: q.r.WithContext(gone)}, smallBody+1, "a", func() (int, error) { return 7, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("of a client that has gone: %v", err)
	}
	close(end)
	all.Wait()
	for err, want := range map[error]int{scan.ErrTooMany: 413, errors.New("it is no JSON"): 400} {
		if _, got := decoded(q, smallBody+1, "a", func() (int, error) { return 0, fmt.Errorf("the body: %w", err) }); status.From(got).Code() != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
