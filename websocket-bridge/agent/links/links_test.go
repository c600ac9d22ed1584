package links_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestPauses: agents that lose a bridge together must not dial it together, so half of each pause is random.
func TestPauses(t *testing.T) {
	most := []time.Duration{
		500 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
		10 * time.Second, 10 * time.Second,
	}
	synctest.Test(t, func(t *testing.T) {
		var all [2][]time.Duration
		for i := range all {
			ctx, cancel := context.WithCancel(t.Context())
			last := time.Now()
			links.New(links.Config{
				Gateway: "https://gateway.example.com", Cluster: "prod",
				Credential: func(context.Context) (possession.Credential, error) {
					return possession.Credential{Token: secrets.NewValue([]byte("t"))}, nil
				},
				Dial: func(context.Context, string, string) (net.Conn, error) {
					if all[i] = append(all[i], time.Since(last)); len(all[i]) == len(most) {
						cancel()
					}
					last = time.Now()
					return nil, errors.New("down")
				},
				Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
			}).Run(ctx)
			for n, pause := range all[i] {
				if least := most[n] / 2; pause > most[n] || n > 0 && pause < least {
					t.Errorf("attempt %d comes after %s, want %s to %s", n, pause, least, most[n])
				}
			}
		}
		if slices.Equal(all[0], all[1]) {
			t.Errorf("two agents keep step: %s", all[0])
		}
	})
}
