package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Objects is what a Fleet needs of an objects.Store.
type Objects interface {
	List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error)
}

// How old an inventory may be while its store is down, and how long reading it may take.
const (
	staleInventory   = 30 * time.Second
	inventoryRetry   = 2 * time.Second
	inventoryTimeout = 5 * time.Second
)

// inventory is every cluster and registry, at one moment. It does not change.
type inventory struct {
	clusters   []entry // by name
	registries []searchv1alpha1.ResourceRegistry
	digest     string // of the versions of all of them
}

// entry is a cluster with its permanent id: the store's revision that created it.
type entry struct {
	*clusterv1alpha1.Cluster
	id uint64
}

// has reports whether there is a cluster of that name.
func (inv *inventory) has(name string) bool {
	_, ok := slices.BinarySearchFunc(inv.clusters, name, func(e entry, name string) int { return strings.Compare(e.Name, name) })
	return ok
}

// entry returns the cluster of that name; without an id where there is none.
func (inv *inventory) entry(name string) entry {
	for _, c := range inv.clusters {
		if c.Name == name {
			return c
		}
	}
	none := &clusterv1alpha1.Cluster{}
	none.Name = name
	return entry{Cluster: none}
}

func newInventory(store Objects, fresh time.Duration, log *slog.Logger) *cache.Cache[*inventory] {
	return cache.New(cache.Config{
		Name: "fleet", Max: 1, TTL: fresh, Stale: staleInventory, Retry: inventoryRetry, Timeout: inventoryTimeout,
		Missing: func(error) bool { return false },
		Down: func(err error) bool {
			return errors.Is(err, objects.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		},
		Log: log,
	}, func(ctx context.Context, _ string) (*inventory, error) { return readInventory(ctx, store, log) })
}

// readInventory reads both. What cannot be read takes part in nothing, and the log says so.
func readInventory(ctx context.Context, store Objects, log *slog.Logger) (*inventory, error) {
	inv := &inventory{}
	page, err := store.List(ctx, clusterv1alpha1.Prefix, 0, "")
	if err != nil {
		return nil, err
	}
	for _, o := range page.Objects {
		c := &clusterv1alpha1.Cluster{}
		if err := json.Unmarshal(o.Value, c); err != nil {
			log.Error("a cluster cannot be read and is left out of the fleet", "key", o.Key, "error", err.Error())
			continue
		}
		c.Name = strings.TrimPrefix(o.Key, clusterv1alpha1.Prefix)
		inv.clusters = append(inv.clusters, entry{c, o.Created})
	}
	versions := versionsOf(page)
	slices.SortFunc(inv.clusters, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	if page, err = store.List(ctx, searchv1alpha1.Prefix, 0, ""); err != nil {
		return nil, err
	}
	for _, o := range page.Objects {
		var r searchv1alpha1.ResourceRegistry
		if err := json.Unmarshal(o.Value, &r); err != nil {
			log.Error("a ResourceRegistry cannot be read and takes nothing in", "key", o.Key, "error", err.Error())
			continue
		}
		r.Name = strings.TrimPrefix(o.Key, searchv1alpha1.Prefix)
		inv.registries = append(inv.registries, r)
	}
	inv.digest = strings.Join(append(versions, versionsOf(page)...), "\n")
	return inv, nil
}

func versionsOf(page objects.Page) []string {
	out := make([]string, len(page.Objects))
	for i, o := range page.Objects {
		out[i] = fmt.Sprintf("%s %d", o.Key, o.Revision)
	}
	return out
}

func (f *Fleet) inventory(ctx context.Context) (*inventory, error) {
	inv, err := f.inv.Get(ctx, "all")
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			return nil, cause
		}
		return nil, &status.Error{Reason: status.StoreUnavailable, Err: err, RetryAfter: max(inventoryRetry, objects.RetryAfter(err)),
			Message: "the gateway cannot read its clusters and registries now; try again"}
	}
	return inv, nil
}
