package agentserver_test

import (
	"net"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/metrictest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

// TestStuckAgent: an agent that does not respond must fail no request that another agent can serve.
func TestStuckAgent(t *testing.T) {
	w := newWorld(t)
	here, there := w.pair()
	token := w.enrol("prod", time.Hour)
	w.agent("prod", token, there.front.Listener.Addr().String())
	there.connects(t, 1)
	const busy = 3
	dial := func(r *replica) net.Conn {
		t.Helper()
		var conn net.Conn
		waittest.Until(t, "a connection", func() bool {
			var err error
			conn, err = r.Dial(t.Context(), "prod", "", nil, nil)
			return err == nil
		})
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for range busy { // so that the other agent is tried first, even with abandoned attempts
		dial(there)
	}
	stuck, err := mux.Accepter(w.evil("prod", token, there))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stuck.Close() })
	there.connects(t, 2)
	for _, r := range []*replica{there, here} {
		_ = dial(r).Close()
	}
	waittest.Until(t, "nothing else is open", func() bool {
		return metrictest.Gauge(t, there.metrics, "clusterpass_tunnel_streams") == busy
	})
}
