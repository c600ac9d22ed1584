package agentserver_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// TestRefusalsAreCounted: lines about clients without a credential must not fill the log, which may be in one buffer
// with audit events.
func TestRefusalsAreCounted(t *testing.T) {
	const requests = 300
	w := newWorld(t)
	var log waittest.Buffer
	r := w.replica(func(c *agentserver.Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	client := r.front.Client()
	for range requests {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.front.URL+"/bridge/agent/v1/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Fatal(resp.Status)
		}
	}
	r.front.Close() // all refusals are logged
	r.Close()
	lines, counted := 0, 0
	for line := range strings.Lines(log.String()) {
		var l struct {
			Msg      string
			Requests int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Msg == "an agent is refused" {
			lines, counted = lines+1, counted+max(1, l.Requests)
		}
	}
	if lines >= requests || counted != requests {
		t.Errorf("%d lines count %d requests", lines, counted)
	}
}
