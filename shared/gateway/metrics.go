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
	// AuditWaitingMetric is the number of events in a function's memory. They wait because their delivery failed.
	AuditWaitingMetric = "AuditEventsWaiting"
	// FailedRequestsMetric counts, for a published version of a function, the requests that Gateway.failed counts.
	FailedRequestsMetric = "FailedRequests"
)

// The dimensions of metrics of a published version. AWS's own metrics have the same.
const (
	functionDimension = "FunctionName"
	versionDimension  = "ExecutedVersion"
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
type metricCounts struct{ stale, lost, refused, waiting, failed uint64 }

// newCounts returns the counts since its last call, and the events that wait now.
func (g *Gateway) newCounts() metricCounts {
	g.reportedMu.Lock() // before the counts are read, so that none is less than an earlier one
	defer g.reportedMu.Unlock()
	before, s := g.reported, g.AuditStats()
	g.reported = metricCounts{stale: g.staleReads(), lost: s.Lost, refused: s.Refused, failed: g.failed.Load()}
	return metricCounts{
		stale: g.reported.stale - before.stale, lost: g.reported.lost - before.lost,
		refused: g.reported.refused - before.refused, waiting: uint64(s.Waiting),
		failed: g.reported.failed - before.failed,
	}
}

// metricAttrs returns attributes and the least level for the log of a function's call. All are counted since the last
// report. Stale reads are a warning, and all others are errors. With a namespace, the line also has the embedded metric
// format of CloudWatch:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
func (g *Gateway) metricAttrs() (attrs []slog.Attr, least slog.Level) {
	counts := g.newCounts()
	fn := g.cfg.Function
	if fn.Version == "" {
		counts.failed = 0 // only alarms of versions use it
	}
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
		{AuditWaitingMetric, counts.waiting, slog.LevelError},
		{FailedRequestsMetric, counts.failed, slog.LevelError},
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
	dimensions := [][]string{{}}
	if fn.Version != "" {
		dimensions = append(dimensions, []string{functionDimension, versionDimension})
		attrs = append(attrs, slog.String(functionDimension, fn.Name), slog.String(versionDimension, fn.Version))
	}
	attrs = append(attrs, slog.Any("_aws", map[string]any{
		"Timestamp": time.Now().UnixMilli(),
		"CloudWatchMetrics": []any{map[string]any{
			"Namespace": g.cfg.MetricsNamespace, "Dimensions": dimensions, "Metrics": metrics,
		}},
	}))
	return attrs, least
}
