package agentserver

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

// TestStuckInLastQuarter: agents whose credential ends soon and that do not respond must not delay the recheck of
// others.
func TestStuckInLastQuarter(t *testing.T) {
	t.Parallel() // it mostly waits
	a := New(Config{Recheck: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	t.Cleanup(a.Close)
	var looked atomic.Int64
	stuck := &session{cluster: "stuck", agent: "a", mux: stuckMux(t)}
	stuck.credential.Store(&passes.Agent{
		Cluster: "stuck", IsEnding: func() bool { return true }, Recheck: func(context.Context) error { return nil },
	})
	other := &session{cluster: "other", agent: "a", mux: stuckMux(t)}
	other.credential.Store(&passes.Agent{
		Cluster: "other", IsEnding: func() bool { return false },
		Recheck: func(context.Context) error { looked.Add(1); return nil },
	})
	for _, s := range []*session{stuck, other} {
		if err := a.registry.add(s); err != nil {
			t.Fatal(err)
		}
	}
	// Without a response, an agent is given up only after openTimeout.
	const often = 200
	waittest.Until(t, "the other one is looked at often", func() bool { return looked.Load() >= often })
}

func stuckMux(t *testing.T) *mux.Session {
	t.Helper()
	bridge, _ := newTunnel(t)
	return bridge
}

func newTunnel(t *testing.T) (bridge, agent *mux.Session) {
	t.Helper()
	there := make(chan *websocket.Conn, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if ws, err := mux.NewUpgrader().Upgrade(rw, r, nil); err == nil {
			there <- ws
		}
	}))
	t.Cleanup(srv.Close)
	ws, resp, err := mux.NewDialer().DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	agent, err = mux.Accepter(<-there)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close() })
	bridge, err = mux.Opener(ws)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bridge.Close() })
	return bridge, agent
}
