package streams

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestNoStreamsWhileDraining(t *testing.T) {
	r := New(Config{}, prometheus.NewRegistry())
	s, err := r.Open(t.Context(), Info{Exec, "m", "alice"})
	if err != nil {
		t.Fatal(err)
	}
	sessions, end := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() {
		r.Drain(t.Context(), sessions)
		close(drained)
	}()
	var refused *status.Error
	for refused == nil {
		s, err := r.Open(t.Context(), Info{Exec, "m", "bob"})
		if err == nil {
			_ = s.Close(nil)
			continue
		}
		if !errors.As(err, &refused) || refused.Reason != status.Draining || refused.RetryAfter == 0 {
			t.Fatalf("%v", err)
		}
	}
	if s.Context().Err() != nil {
		t.Error("the session ended while it had time")
	}
	end()
	<-s.Context().Done()
	if err := s.Close(nil); !errors.As(err, &refused) || refused.Reason != status.Draining {
		t.Errorf("closed with %v", err)
	}
	<-drained
}

func TestLabelsAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := New(Config{}, reg)
	for i := range 3 * maxClusters {
		s, err := r.Open(t.Context(), Info{Watch, fmt.Sprint("c", i), "alice"})
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close(nil)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > 2*(maxClusters+1) {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
	}
}

// TestEndOfTheCall: a client must read why its request was ended. If the client left, there is no reason.
func TestEndOfTheCall(t *testing.T) {
	r := New(Config{}, prometheus.NewRegistry())
	revoked := status.New(status.Forbidden, "m", "the right was taken away")
	for _, cause := range []error{revoked, context.Canceled} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s, err := r.Open(ctx, Info{Exec, "m", "alice"})
		if err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		<-s.Context().Done()
		if got := context.Cause(s.Context()); !errors.Is(got, cause) {
			t.Errorf("ended for %v, want %v", got, cause)
		}
		// The cause must be the very same error, not one of its kind.
		err = s.Close(nil)
		isRevoked := cause == error(revoked) //nolint:errorlint // see above
		if isRevoked && !errors.Is(err, revoked) || !isRevoked && err != nil {
			t.Errorf("closed with %v", err)
		}
	}
}
