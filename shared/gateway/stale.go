package gateway

import (
	"log/slog"
	"maps"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
)

// CacheStats counts what each cache does, by its name.
func (g *Gateway) CacheStats() map[string]cache.Stats {
	all := map[string]cache.Stats{}
	for _, stats := range g.cfg.Caches {
		maps.Copy(all, stats())
	}
	return all
}

// staleReads is how much was read from caches though it had ended, since a store was down.
func (g *Gateway) staleReads() (n uint64) {
	for _, s := range g.CacheStats() {
		n += s.StaleHits
	}
	return n
}

// staleAttrs says in the log of a function's call that n reads of it were stale. A function has one call at a time, and nobody who asks it
// for its counters: with a namespace, the line is one of the embedded metric format too, which CloudWatch Logs counts by.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
func (g *Gateway) staleAttrs(n uint64) []slog.Attr {
	if n == 0 {
		return nil
	}
	attrs := []slog.Attr{slog.Uint64("StaleReads", n)}
	if g.cfg.Namespace == "" {
		return attrs
	}
	return append(attrs, slog.Any("_aws", map[string]any{
		"Timestamp": time.Now().UnixMilli(),
		"CloudWatchMetrics": []any{map[string]any{
			"Namespace": g.cfg.Namespace, "Dimensions": [][]string{{}}, "Metrics": []any{map[string]string{"Name": "StaleReads", "Unit": "Count"}},
		}},
	}))
}
