package streams

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/status"
)

// maxClusters limits the values of the label cluster. Further clusters count as "other".
const maxClusters = 200

type metrics struct {
	openNow  *prometheus.GaugeVec
	bytes    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec

	mu       sync.Mutex
	clusters map[string]struct{}
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		openNow: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "clusterpass_streams_open", Help: "Streams that are open now, by kind and cluster.",
		}, []string{"kind", "cluster"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterpass_stream_bytes_total",
			Help: "Bytes that streams carried, by kind, cluster and direction: in is from the client.",
		}, []string{"kind", "cluster", "direction"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "clusterpass_stream_duration_seconds", Help: "How long ended streams were open, by kind and cluster.",
			Buckets: []float64{0.1, 1, 10, 60, 600, 3600, 14400},
		}, []string{"kind", "cluster"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterpass_stream_failures_total",
			Help: "Streams that were refused, failed or ended by the bridge, by kind, cluster and reason.",
		}, []string{"kind", "cluster", "reason"}),
		clusters: map[string]struct{}{},
	}
	reg.MustRegister(m.openNow, m.bytes, m.duration, m.failures)
	return m
}

func (m *metrics) cluster(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.clusters[name]; !ok && len(m.clusters) >= maxClusters {
		return "other"
	}
	m.clusters[name] = struct{}{}
	return name
}

// opened returns the counters of bytes from and to the client.
func (m *metrics) opened(i Info) (in, out prometheus.Counter) {
	kind, cluster := string(i.Kind), m.cluster(i.Cluster)
	m.openNow.WithLabelValues(kind, cluster).Inc()
	return m.bytes.WithLabelValues(kind, cluster, "in"), m.bytes.WithLabelValues(kind, cluster, "out")
}

func (m *metrics) closed(i Info, d time.Duration) {
	kind, cluster := string(i.Kind), m.cluster(i.Cluster)
	m.openNow.WithLabelValues(kind, cluster).Dec()
	m.duration.WithLabelValues(kind, cluster).Observe(d.Seconds())
}

func (m *metrics) failed(i Info, reason status.Reason) {
	m.failures.WithLabelValues(string(i.Kind), m.cluster(i.Cluster), string(reason)).Inc()
}
