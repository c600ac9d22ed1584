package gateway

import (
	"log/slog"
	"maps"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// The names of CloudWatch metrics of the caches and of the audit log.
const (
	StaleReadsMetric   = "StaleReads"
	AuditLostMetric    = "AuditEventsLost"
	AuditRefusedMetric = "AuditCallsRefused"
)

// Completed is a request whose response has ended.
type Completed struct {
	Route    route.Kind
	IsStream bool          // it stays open by its nature, so that its duration shows no latency
	Reason   status.Reason // the gateway's own error; "" for none
	Duration time.Duration
}

func (g *Gateway) observe(c *call, isAborted bool) {
	if g.cfg.Observe == nil {
		return
	}
	done := Completed{
		Route: c.request.Route.Kind, IsStream: c.request.IsStream, Duration: time.Since(c.started),
	}
	if c.err != nil {
		done.Reason = c.err.Reason
	} else if isAborted {
		done.Reason = status.Aborted
	}
	g.cfg.Observe(done)
}

// CacheStats returns the statistics of all caches by name.
func (g *Gateway) CacheStats() map[string]cache.Stats {
	all := map[string]cache.Stats{}
	for _, stats := range g.cfg.Caches {
		maps.Copy(all, stats())
	}
	return all
}

// staleReads returns how often an expired cache entry was used because a store was down.
func (g *Gateway) staleReads() (n uint64) {
	for _, s := range g.CacheStats() {
		n += s.StaleHits
	}
	return n
}

// metricCounts contains counts that a function reports.
type metricCounts struct{ stale, lost, refused uint64 }

// newCounts returns the counts since its last call.
func (g *Gateway) newCounts() metricCounts {
	g.reportedMu.Lock() // before the counts are read, so that none is less than an earlier one
	defer g.reportedMu.Unlock()
	before, s := g.reported, g.AuditStats()
	g.reported = metricCounts{g.staleReads(), s.Lost, s.Refused}
	return metricCounts{
		g.reported.stale - before.stale, g.reported.lost - before.lost, g.reported.refused - before.refused,
	}
}

// metricAttrs returns attributes and the least level for the log of a function's call. All are counted since the last
// report. Lost events and refused calls are errors. Stale reads are a warning. With a namespace, the line also has the
// embedded metric format of CloudWatch:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
func (g *Gateway) metricAttrs() (attrs []slog.Attr, least slog.Level) {
	counts := g.newCounts()
	var metrics []any
	least = slog.LevelDebug
	for _, m := range []struct {
		name  string
		count uint64
		level slog.Level
	}{
		{StaleReadsMetric, counts.stale, slog.LevelWarn},
		{AuditLostMetric, counts.lost, slog.LevelError},
		{AuditRefusedMetric, counts.refused, slog.LevelError},
	} {
		if m.count > 0 {
			least = max(least, m.level)
			attrs = append(attrs, slog.Uint64(m.name, m.count))
			metrics = append(metrics, map[string]string{"Name": m.name, "Unit": "Count"})
		}
	}
	if len(attrs) == 0 || g.cfg.MetricsNamespace == "" {
		return attrs, least
	}
	attrs = append(attrs, slog.Any("_aws", map[string]any{
		"Timestamp": time.Now().UnixMilli(),
		"CloudWatchMetrics": []any{map[string]any{
			"Namespace": g.cfg.MetricsNamespace, "Dimensions": [][]string{{}}, "Metrics": metrics,
		}},
	}))
	return attrs, least
}
