package bridge

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// completed has the metrics of completed requests.
type completed struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

func newCompleted(reg prometheus.Registerer) *completed {
	c := &completed{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "clusterpass_call_duration_seconds",
			Help: "Duration of calls, without streams, by target: cluster, fleet or gateway.",
			Buckets: []float64{
				0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
			},
		}, []string{"target"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterpass_call_failures_total",
			Help: "Calls and streams that ended with an error of the gateway, by target and reason.",
		}, []string{"target", "reason"}),
	}
	reg.MustRegister(c.duration, c.failures)
	return c
}

func (c *completed) observe(r gateway.Completed) {
	target := "gateway"
	switch r.Route {
	case route.Cluster:
		target = "cluster"
	case route.Fleet:
		target = "fleet"
	}
	if !r.IsStream {
		c.duration.WithLabelValues(target).Observe(r.Duration.Seconds())
	}
	if r.Reason != "" {
		c.failures.WithLabelValues(target, string(r.Reason)).Inc()
	}
}

// metricsAPI adds GET /bridge/metrics to the gateway's API, for callers with the right to get the URL /metrics. Without
// the prefix, the cluster CLUSTERPASS_CONTROL_PLANE may serve that path.
type metricsAPI struct {
	gateway.API
	access  *access.Authorizer
	handler http.Handler
}

func (b *Bridge) withMetrics(api gateway.API, authorizer *access.Authorizer) gateway.API {
	return metricsAPI{API: api, access: authorizer, handler: promhttp.HandlerFor(b.Metrics, promhttp.HandlerOpts{})}
}

// Serve implements gateway.API.
func (m metricsAPI) Serve(w http.ResponseWriter, r *http.Request, c *gateway.APICall) (next string, err error) {
	if !c.Route.Bridge || c.Route.Path != "/metrics" || r.Method != http.MethodGet {
		return m.API.Serve(w, r, c)
	}
	if s := c.User.Scope; s != nil && !slices.Contains(s.Clusters, "*") { // metrics name all clusters
		c.RecordDecision(false, "the pass is limited to clusters")
		return "", status.New(status.Forbidden, "", "the metrics were refused: the pass is limited to clusters %q; use a "+
			"credential for all clusters", s.Clusters)
	}
	reason, err := m.access.Decide(r.Context(), c.User, access.Attributes{Verb: "get", Path: "/metrics"})
	c.RecordDecision(err == nil, reason)
	if err != nil {
		return "", err
	}
	m.handler.ServeHTTP(w, r)
	return "", nil
}
