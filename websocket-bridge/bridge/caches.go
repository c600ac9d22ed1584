package bridge

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/cache"
)

type caches struct {
	mu     sync.Mutex
	counts []func() map[string]cache.Stats // by the cache's name
}

// CountCaches adds caches to the metrics. stats returns them by name.
func (b *Bridge) CountCaches(stats func() map[string]cache.Stats) {
	b.caches.mu.Lock()
	defer b.caches.mu.Unlock()
	b.caches.counts = append(b.caches.counts, stats)
}

var (
	cacheHits = prometheus.NewDesc("clusterpass_cache_hits_total",
		"Reads answered from a fresh cache entry.", []string{"cache"}, nil)
	cacheMisses = prometheus.NewDesc("clusterpass_cache_misses_total",
		"Reads of the store.", []string{"cache"}, nil)
	cacheStale = prometheus.NewDesc("clusterpass_cache_stale_total",
		"Reads answered from an expired cache entry because the store was down or hung.", []string{"cache"}, nil)
	cacheErrors = prometheus.NewDesc("clusterpass_cache_errors_total",
		"Failed reads of the store.", []string{"cache"}, nil)
	cacheEvictions = prometheus.NewDesc("clusterpass_cache_evictions_total",
		"Cache entries removed because the cache was full.", []string{"cache"}, nil)
	cacheEntries = prometheus.NewDesc("clusterpass_cache_entries",
		"Cache entries, including those of missing keys.", []string{"cache"}, nil)
)

func (*caches) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{cacheHits, cacheMisses, cacheStale, cacheErrors, cacheEvictions, cacheEntries} {
		descs <- d
	}
}

func (c *caches) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stats := range c.counts {
		for name, s := range stats() {
			for d, n := range map[*prometheus.Desc]uint64{
				cacheHits: s.Hits, cacheMisses: s.Fetches, cacheStale: s.StaleHits, cacheErrors: s.Errors,
				cacheEvictions: s.Evicted,
			} {
				metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), name)
			}
			metrics <- prometheus.MustNewConstMetric(cacheEntries, prometheus.GaugeValue, float64(s.Size), name)
		}
	}
}
