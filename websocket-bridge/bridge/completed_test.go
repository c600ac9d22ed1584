package bridge

import (
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/metrictest"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// TestMetricsOfCompletedCalls: a stream of hours must not distort the percentiles of latency, and its error must count.
func TestMetricsOfCompletedCalls(t *testing.T) {
	b := New(Limits{})
	for _, r := range []gateway.Completed{
		{Route: route.Cluster, Duration: time.Second},
		{Route: route.Cluster, Duration: time.Second, Reason: status.Unreachable},
		{Route: route.Cluster, Duration: time.Hour, Reason: status.Unreachable, IsStream: true},
		{Route: route.Fleet, Duration: time.Second},
		{Route: route.Gateway, Duration: time.Second, Reason: status.Forbidden},
	} {
		b.completed.observe(r)
	}
	for _, want := range []struct {
		name   string
		labels []string
		value  float64
	}{
		{"clusterpass_call_duration_seconds", []string{"target=cluster"}, 2},
		{"clusterpass_call_duration_seconds", []string{"target=fleet"}, 1},
		{"clusterpass_call_duration_seconds", []string{"target=gateway"}, 1},
		{"clusterpass_call_failures_total", []string{"target=cluster", "reason=unreachable"}, 2},
		{"clusterpass_call_failures_total", []string{"target=gateway", "reason=forbidden"}, 1},
	} {
		if got := metrictest.Value(t, b.Metrics, want.name, want.labels...); got != want.value {
			t.Errorf("%s %v is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
}
