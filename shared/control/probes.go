package control

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpass/clusterpass/shared/cache"
)

const (
	// probeEvery is the shortest time between two probes of a cluster that requests for its object cause.
	probeEvery = 30 * time.Second
	// probed is the maximum number of clusters whose last probe is remembered.
	probed = 1024
)

// probes probes clusters whose objects are requested by name. A nil *probes does nothing.
type probes struct {
	look   func(ctx context.Context, name string) (ready bool, err error)
	recent *cache.Expiring[string, struct{}] // names of clusters that were probed less than probeEvery ago
}

func newProbes(look func(context.Context, string) (bool, error)) *probes {
	if look == nil {
		return nil
	}
	return &probes{look, cache.NewExpiring[string, struct{}](probed, nil)}
}

// Get implements rest.Getter.
func (c *clusterStore) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	if p := c.probes; p != nil {
		if _, ok := p.recent.Get(name); !ok {
			p.recent.Add(name, struct{}{}, time.Now().Add(probeEvery))
			_, _ = p.look(ctx, name) // the stored object is the response in any case
		}
	}
	return c.stored.Get(ctx, name, opts)
}
