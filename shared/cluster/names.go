package cluster

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// The rate per second and the burst of reads of objects for unidentified callers.
const (
	unidentifiedReads = 5
	unidentifiedBurst = 10
)

// names bounds the reads for names that unidentified callers invent, by a cached list of all clusters.
type names struct {
	reads *rate.Limiter
	list  *cache.Cache[map[string]struct{}]
}

func newNames(cfg Config) *names {
	return &names{
		reads: rate.NewLimiter(unidentifiedReads, unidentifiedBurst),
		list: cache.New(cache.Config{
			Name: "cluster names", Max: 1, TTL: cfg.Freshness.Object, Stale: staleObject, Patience: cfg.Freshness.Patience,
			Retry: storeRetry, Timeout: storeTimeout, Missing: func(error) bool { return false }, Down: objectsDown,
			Source: cache.SourceOf(cfg.Objects), Now: cfg.Now, Log: cfg.Log,
		}, func(ctx context.Context, prefix string) (map[string]struct{}, error) {
			page, err := cfg.Objects.List(ctx, prefix, 0, "")
			if err != nil {
				return nil, err
			}
			known := make(map[string]struct{}, len(page.Objects))
			for _, o := range page.Objects {
				known[strings.TrimPrefix(o.Key, prefix)] = struct{}{}
			}
			return known, nil
		}),
	}
}

func (n *names) mayRead(now time.Time) bool { return n.reads.AllowN(now, 1) }

func (n *names) has(ctx context.Context, name string) (bool, error) {
	known, err := n.list.Get(ctx, v1alpha1.Prefix)
	_, ok := known[name]
	return ok, err
}

func objectsDown(err error) bool {
	return errors.Is(err, objects.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// Mode returns a cluster's identity mode without its secret, with the errors of Get. For unidentified callers, many
// calls with different names cost few reads.
func (m *Members) Mode(ctx context.Context, name string) (v1alpha1.Identity, error) {
	// If the store is down, the list may not be readable. Use a cached object then, as for other callers.
	isCached := m.objects.CanServe(v1alpha1.Prefix + name)
	if m.cfg.Freshness.Object > 0 && !isCached && !m.names.mayRead(m.cfg.Now()) {
		switch known, err := m.names.has(ctx, name); {
		case err != nil:
			return "", storeError(name, err)
		case !known:
			return "", unknownCluster(name, nil)
		}
	}
	c, _, err := m.readObject(ctx, name, m.objects.Get)
	if err != nil {
		return "", err
	}
	return c.Mode(), nil
}
