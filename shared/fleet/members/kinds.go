package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// All callers share the cached kinds, since the gateway reads them with its own credential. Kinds hardly change, so
// that old ones serve while a member is down.
const (
	kindsMax   = 8192 // of 500 members, 16 API versions; requests can name others, which evict the least used ones
	kindsTTL   = 30 * time.Second
	kindsStale = time.Hour
	kindsRetry = 10 * time.Second // twice the interval in which watches review their clusters
	kindsHung  = time.Minute
)

// Bounds of the kinds of one API version. No API comes near them.
const (
	kindsValues  = 100_000  // of JSON, in a document of at most 1 MiB
	kindsSize    = 32 << 10 // bytes of one cache entry
	kindOverhead = 64       // bytes of each kind beside its names
)

// ResourceKind is the kind of a resource in one member.
type ResourceKind struct {
	Kind       string // "" if the member lacks the resource
	Namespaced bool
}

// KindReport is the kind of a resource in one member, or why it is not known.
type KindReport struct {
	ResourceKind
	Unavailable *Failure // nil if the kind is known
}

// newKinds returns the cache of the kinds that read reads. While a member is slow, old kinds serve after half of the
// grace period: they must arrive before Kinds leaves the member out.
func newKinds(cfg Config, read func(ctx context.Context, key string) (map[string]ResourceKind, error),
) *cache.Cache[map[string]ResourceKind] {
	return cache.New(cache.Config{
		Name: "kinds", Max: kindsMax, TTL: kindsTTL, Stale: kindsStale, Patience: cfg.GracePeriod / 2, Retry: kindsRetry,
		Hung: kindsHung, Timeout: cfg.Deadline,
		Missing: func(error) bool { return false },
		Down:    func(error) bool { return true },
		Log:     cfg.Log,
	}, read)
}

// A member that is registered anew has another id.
func kindsKey(m Entry, apiVersion string) string {
	return fmt.Sprintf("%d/%s/%s", m.ID, m.Name, apiVersion)
}

func (p *Pool) readKinds(ctx context.Context, key string) (kinds map[string]ResourceKind, err error) {
	_, key, _ = strings.Cut(key, "/")
	name, apiVersion, _ := strings.Cut(key, "/")
	defer p.Recover(name, func(e *Failure) { err = e }) // the goroutine is one of the cache
	m, err := p.cfg.Members.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	path := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		path = "/api/" + apiVersion
	}
	var doc json.RawMessage
	err = m.Call(ctx, "GET", path, nil, &doc)
	var refused *cluster.CallError
	if errors.As(err, &refused) && refused.Code == 404 {
		return map[string]ResourceKind{}, nil
	} else if err != nil {
		return nil, err
	}
	return kindsOf(doc)
}

func kindsOf(doc []byte) (map[string]ResourceKind, error) {
	if err := scan.CheckValueCount(doc, kindsValues); err != nil {
		return nil, err
	}
	var list struct {
		Resources []struct {
			Name       string `json:"name"`
			Kind       string `json:"kind"`
			Namespaced bool   `json:"namespaced"`
		} `json:"resources"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &list); err != nil {
		return nil, err
	}
	kinds, size := map[string]ResourceKind{}, 0
	for _, r := range list.Resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if size += len(r.Name) + len(r.Kind) + kindOverhead; size > kindsSize {
			return nil, fmt.Errorf("its kinds are over %d KiB", kindsSize>>10)
		}
		kinds[r.Name] = ResourceKind{r.Kind, r.Namespaced}
	}
	return kinds, nil
}

// Kinds returns the kind of a resource in each of these members, by name. Once the member with the id preferred has the
// resource, it waits for the others no longer than the grace period; 0 prefers none.
func (p *Pool) Kinds(ctx context.Context, members []Entry, k registry.Kind, preferred uint64) (
	map[string]KindReport, error,
) {
	type result struct {
		from   Entry
		report KindReport
	}
	results := make(chan result, len(members))
	unavailable := func(m Entry, err error) KindReport {
		return KindReport{Unavailable: NewFailure(m.Name, http.StatusBadGateway, err,
			"cluster %q cannot describe its %s of %s now", m.Name, k.Resource, k.APIVersion)}
	}
	ctx = cluster.WithBuffer(ctx, cluster.BufferOf(len(members)))
	reports := make(map[string]KindReport, len(members))
	for _, m := range members {
		reports[m.Name] = unavailable(m, ErrFoundElsewhere)
		go func() { // ends within the deadline
			defer p.Recover(m.Name, func(e *Failure) { results <- result{m, KindReport{Unavailable: e}} })
			kinds, err := p.kinds.Get(ctx, kindsKey(m, k.APIVersion))
			if err == nil && kinds[k.Resource].Kind == "" { // it may be new
				kinds, err = p.kinds.Refresh(ctx, kindsKey(m, k.APIVersion))
			}
			if err != nil {
				results <- result{m, unavailable(m, err)}
				return
			}
			results <- result{m, KindReport{ResourceKind: kinds[k.Resource]}}
		}()
	}
	var late <-chan time.Time
	for range members {
		select {
		case r := <-results:
			if reports[r.from.Name] = r.report; r.from.ID == preferred && r.report.Kind != "" {
				late = time.After(p.cfg.GracePeriod)
			}
		case <-late:
			return reports, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return reports, nil
}
