package control

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// probeEvery is how often, at most, a cluster is looked at because somebody asks for it.
	probeEvery = 30 * time.Second
	// probed bounds of how many clusters that is remembered.
	probed = 1024
)

// probes looks at clusters that are asked for by name; nil looks at none.
type probes struct {
	look func(ctx context.Context, name string) (ready bool, err error)
	last *lru.Cache[string, time.Time] // by name
}

func newProbes(look func(context.Context, string) (bool, error)) *probes {
	if look == nil {
		return nil
	}
	last, err := lru.New[string, time.Time](probed)
	if err != nil {
		panic(err) // probed is positive
	}
	return &probes{look, last}
}

// Get implements rest.Getter.
func (c *clusterStore) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	if p := c.probes; p != nil {
		if last, ok := p.last.Get(name); !ok || time.Since(last) >= probeEvery {
			p.last.Add(name, time.Now())
			_, _ = p.look(ctx, name) // what the object says is answered, in any case
		}
	}
	return c.stored.Get(ctx, name, opts)
}
