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
	var members assembly.Fleet = cfg.NewFleet(f.Parts, f.Members)
	if p.IsFrozen {
		members = &parallel{Fleet: members}
	}
	return f.Handler(ctx, members, nil)
}

// parallel is a fleet that uses all processors from its first request. The template starts the function with one, since
// the steps of a start follow each other.
type parallel struct {
	assembly.Fleet

	once sync.Once
}

// Do implements gateway.Fleet.
func (p *parallel) Do(w http.ResponseWriter, r *http.Request, c forward.FleetCall) (*forward.Remainder, error) {
	p.once.Do(runtime.SetDefaultGOMAXPROCS)
	return p.Fleet.Do(w, r, c)
}
