package control

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpass/clusterpass/shared/cache"
)

const (
	// probeInterval is the minimum interval between two probes of a cluster by requests for it.
	probeInterval = 30 * time.Second
	maxProbed     = 1024
)

// probes probes clusters that are requested by name. A nil *probes probes none.
type probes struct {
	probe  func(ctx context.Context, name string) (ready bool, err error)
	recent *cache.Expiring[string, struct{}] // names of clusters that were probed less than probeInterval ago
}

func newProbes(probe func(context.Context, string) (bool, error)) *probes {
	if probe == nil {
		return nil
	}
	return &probes{probe, cache.NewExpiring[string, struct{}](maxProbed, nil)}
}

func (c *clusterStore) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	if p := c.probes; p != nil {
		if _, ok := p.recent.Get(name); !ok {
			p.recent.Add(name, struct{}{}, time.Now().Add(probeInterval))
			_, _ = p.probe(ctx, name) // the response contains the stored status in any case
		}
	}
	return c.stored.Get(ctx, name, opts)
}
