package control

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// probeInterval is the minimum interval between two probes of a cluster by requests for it.
	probeInterval = 30 * time.Second
	// maxProbed bounds the clusters whose last probe is remembered.
	maxProbed = 1024
)

// probes probes clusters that are requested by name. A nil *probes probes none.
type probes struct {
	probe func(ctx context.Context, name string) (ready bool, err error)
	last  *lru.Cache[string, time.Time] // by name
}

func newProbes(probe func(context.Context, string) (bool, error)) *probes {
	if probe == nil {
		return nil
	}
	last, err := lru.New[string, time.Time](maxProbed)
	if err != nil {
		panic(err) // probed is positive
	}
	return &probes{probe, last}
}

// Get implements rest.Getter.
func (c *clusterStore) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	if p := c.probes; p != nil {
		if last, ok := p.last.Get(name); !ok || time.Since(last) >= probeInterval {
			p.last.Add(name, time.Now())
			_, _ = p.probe(ctx, name) // the response contains the stored status in any case
		}
	}
	return c.stored.Get(ctx, name, opts)
}
