// Package fleet is the function that serves REST requests to many member clusters as one.
package fleet

import (
	"context"
	"net/http"

	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/assembly/fleetconfig"
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
	return f.Handler(ctx, cfg.NewFleet(f.Parts, f.Members), nil)
}
