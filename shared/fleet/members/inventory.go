package members

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
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

// Objects lists the stored clusters and registries. An objects.Store implements it.
type Objects interface {
	objects.Lister
}

const ( // while the store is down
	staleInventory   = 30 * time.Second
	inventoryRetry   = 2 * time.Second
	inventoryTimeout = 5 * time.Second
)

// Inventory has all clusters and registries at one moment. It is immutable.
type Inventory struct {
	Clusters   []Entry // sorted by name
	Registries []searchv1alpha1.ResourceRegistry
	// Digest covers all clusters and registries, except the status of clusters. Each probe that finds a change stores a
	// status, so that a fleet of hundreds would always have another digest.
	Digest Digest
}

// Entry is a cluster with its permanent id, which is the store's revision that created it.
type Entry struct {
	*clusterv1alpha1.Cluster
	ID uint64
}

// Has reports whether a cluster of that name is registered.
func (inv *Inventory) Has(name string) bool {
	_, ok := slices.BinarySearchFunc(inv.Clusters, name, func(e Entry, name string) int {
		return strings.Compare(e.Name, name)
	})
	return ok
}

// Entry returns the cluster of that name. If there is none, the result has the name alone.
func (inv *Inventory) Entry(name string) Entry {
	for _, c := range inv.Clusters {
		if c.Name == name {
			return c
		}
	}
	none := &clusterv1alpha1.Cluster{}
	none.Name = name
	return Entry{Cluster: none}
}

func newInventory(store Objects, fresh time.Duration, log *slog.Logger) *cache.Cache[*Inventory] {
	return cache.New(cache.Config{
		Name: "fleet", Max: 1, TTL: fresh, Stale: staleInventory, Retry: inventoryRetry, Timeout: inventoryTimeout,
		Missing: func(error) bool { return false },
		Down: func(err error) bool {
			return errors.Is(err, objects.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		},
		Source: cache.SourceOf(store), Log: log,
	}, func(ctx context.Context, _ string) (*Inventory, error) { return readInventory(ctx, store, log) })
}

func readInventory(ctx context.Context, store Objects, log *slog.Logger) (*Inventory, error) {
	inv := &Inventory{}
	page, err := store.List(ctx, clusterv1alpha1.Prefix, 0, "")
	if err != nil {
		return nil, err
	}
	for _, o := range page.Objects {
		c, err := clusterv1alpha1.Decode(o.Key, o.Value)
		if err != nil {
			log.Error("a cluster cannot be read and is left out of the fleet", "key", o.Key, "error", err.Error())
			continue
		}
		inv.Clusters = append(inv.Clusters, Entry{c, o.Created})
	}
	slices.SortFunc(inv.Clusters, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if page, err = store.List(ctx, searchv1alpha1.Prefix, 0, ""); err != nil {
		return nil, err
	}
	for _, o := range page.Objects {
		var r searchv1alpha1.ResourceRegistry
		if err := json.Unmarshal(o.Value, &r); err != nil {
			log.Error("a ResourceRegistry cannot be read and is ignored", "key", o.Key, "error", err.Error())
			continue
		}
		r.Name = strings.TrimPrefix(o.Key, searchv1alpha1.Prefix)
		inv.Registries = append(inv.Registries, r)
	}
	inv.Digest, err = digest(inv.Clusters, page)
	return inv, err
}

// digest returns the digest of clusters, and of registries by their revisions.
func digest(clusters []Entry, registries objects.Page) (d Digest, err error) {
	h := sha256.New()
	out := json.NewEncoder(h)
	for _, c := range clusters {
		err = errors.Join(err, out.Encode([]any{c.Name, c.ID, c.Labels, c.Annotations, c.Spec}))
	}
	for _, o := range registries.Objects {
		err = errors.Join(err, out.Encode([]any{o.Key, o.Revision}))
	}
	h.Sum(d[:0])
	return d, err
}

// Inventory returns the clusters and registries. They are at most Config.Freshness old while the store is up.
func (p *Pool) Inventory(ctx context.Context) (*Inventory, error) {
	inv, err := p.inventory.Get(ctx, "all")
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			return nil, cause
		}
		return nil, &status.Error{
			Reason: status.StoreUnavailable, Err: err, RetryAfter: max(inventoryRetry, objects.RetryAfter(err)),
			Message: "the gateway cannot read its clusters and registries now; try again",
		}
	}
	return inv, nil
}
