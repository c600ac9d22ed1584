package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// logLine is a line of the log of a function.
type logLine struct {
	Level      string `json:"level"`
	Msg        string `json:"msg"`
	Resource   string `json:"resource"`
	StaleReads *uint64
	AWS        *struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
}

// requestLines returns the lines of requests.
func requestLines(t *testing.T, log io.Reader) []logLine {
	t.Helper()
	var lines []logLine
	for dec := json.NewDecoder(log); ; {
		var l logLine
		if err := dec.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if l.Msg == "request" {
			lines = append(lines, l)
		}
	}
	return lines
}

// CloudWatch makes a metric of the count in the log.
func TestStaleReads(t *testing.T) {
	var stale atomic.Uint64
	var log bytes.Buffer // read after the server has ended
	h := newGateway(t, gatewaytest.Options{Function: gateway.NewFunction(""), Configure: func(c *gateway.Config) {
		c.Log, c.MetricsNamespace = slog.New(slog.NewJSONHandler(&log, nil)), "Clusterpass/test"
		c.Caches = []func() map[string]cache.Stats{
			func() map[string]cache.Stats { return map[string]cache.Stats{"secrets": {StaleHits: stale.Load()}} },
			func() map[string]cache.Stats { return map[string]cache.Stats{"keys": {StaleHits: 1}} }, // before the first call
		}
	}})
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			stale.Add(2)
		}
		_, _ = io.WriteString(w, "{}")
	})
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	for _, path := range []string{"/clusters/m/api/v1/pods", "/clusters/m/api/v1/nodes"} {
		h.Do("GET", path, nil, "")
	}
	h.Close()
	lines := requestLines(t, &log)
	// A call is logged after its response, so that the second call may be logged first, with all stale reads.
	slices.SortFunc(lines, func(a, b logLine) int { return strings.Compare(b.Level, a.Level) })
	if len(lines) != 2 || lines[1].StaleReads != nil || lines[1].AWS != nil {
		t.Fatalf("%+v", lines)
	}
	if l := lines[0]; l.Level != "WARN" || l.StaleReads == nil || *l.StaleReads != 3 || l.AWS == nil ||
		time.Since(time.UnixMilli(l.AWS.Timestamp)).Abs() > time.Hour || len(l.AWS.CloudWatchMetrics) != 1 ||
		l.AWS.CloudWatchMetrics[0].Namespace != "Clusterpass/test" ||
		len(l.AWS.CloudWatchMetrics[0].Dimensions) != 1 || l.AWS.CloudWatchMetrics[0].Metrics[0].Name != "StaleReads" {
		t.Errorf("%+v", l)
	}
}
