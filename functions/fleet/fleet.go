// Package fleet is the function that serves REST requests to many member clusters as one.
package fleet

import (
	"context"
	"net/http"
	"runtime"
	"sync"

	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/fleetconfig"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

// Config is the function's configuration.
type Config struct {
	proxy.Config
	fleetconfig.Settings
}

// New returns the function: that of functions/proxy with a fleet.
func New(ctx context.Context, cfg *Config, p proxy.Process) (http.Handler, lambdahttp.Options, error) {
	f, err := proxy.Open(ctx, &cfg.Config, p)
	if err != nil {
		return nil, lambdahttp.Options{}, err
	}
	return f.Handler(ctx, newFleet(cfg.NewFleet(f.Parts, f.Members), p), nil)
}

// newFleet returns f for a process.
func newFleet(f assembly.Fleet, p proxy.Process) assembly.Fleet {
	if !p.IsFrozen {
		return f
	}
	return &parallelFleet{Fleet: f}
}

// parallelFleet uses all processors from its first request. The template starts the function with one, since the steps
// of a start follow each other.
type parallelFleet struct {
	assembly.Fleet

	once sync.Once
}

// Do implements gateway.Fleet.
func (f *parallelFleet) Do(w http.ResponseWriter, r *http.Request, c forward.FleetCall) (*forward.Remainder, error) {
	f.once.Do(runtime.SetDefaultGOMAXPROCS)
	return f.Fleet.Do(w, r, c)
}
