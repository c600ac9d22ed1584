// Package control is the function that serves the gateway's own Kubernetes API.
package control

import (
	"context"
	"net/http"

	"github.com/clusterpass/clusterpass/functions/fleet"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

// Config is the function's configuration.
type Config struct {
	fleet.Config
	control.Options
}

// New returns the function: that of functions/fleet with the API at its root. frozen means that the process is stopped
// between requests and serves one at a time, as in Lambda.
func New(ctx context.Context, cfg Config, frozen bool) (http.Handler, lambdahttp.Options, error) {
	cfg.ProbeOnGet = true
	cfg.Config.API = cfg.Options.API(cfg.URL, cfg.ControlPlane, cfg.Authentication)
	return fleet.New(ctx, &cfg.Config, frozen)
}
