package links

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/passes/possession"
)

// TestPauseAfterLossOfSeveralLinks: agents that lose several links with one bridge must not dial the others together.
func TestPauseAfterLossOfSeveralLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var dialled []time.Time
		k := New(Config{
			Gateway: "https://gateway.example.com", Cluster: "prod",
			Credential: func(context.Context) (possession.Credential, error) { return possession.Credential{}, nil },
			Dial: func(context.Context, string, string) (net.Conn, error) {
				if dialled = append(dialled, time.Now()); len(dialled) == 2 {
					cancel()
				}
				return nil, errors.New("down")
			},
			Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		})
		k.links, k.replicas = map[string]*link{"a": {}, "b": {}, "c": {}}, 3
		done := make(chan struct{})
		go func() { defer close(done); k.Run(ctx) }()
		lost := time.Now()
		for _, id := range []string{"a", "b", "c"} {
			synctest.Wait()
			k.mu.Lock()
			delete(k.links, id)
			k.mu.Unlock()
			k.notify()
		}
		<-done
		if first := dialled[0].Sub(lost); first == 0 || first > jitter {
			t.Errorf("the first attempt comes after %s, want a random pause of at most %s", first, jitter)
		}
		if second := dialled[1].Sub(dialled[0]); second < firstPause/2 || second > firstPause {
			t.Errorf("the second attempt comes after %s, want %s to %s", second, firstPause/2, firstPause)
		}
	})
}
