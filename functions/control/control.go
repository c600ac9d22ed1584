// Package control is the function that serves the gateway's own Kubernetes API.
package control

import (
	"context"
	"net/http"

	"github.com/clusterpass/clusterpass/functions/fleet"
	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

// Config is the function's configuration.
type Config struct {
	fleet.Config
	apiconfig.Options
}

// New returns the function: that of functions/fleet with the gateway's own API.
func New(ctx context.Context, cfg *Config, p proxy.Process) (http.Handler, lambdahttp.Options, error) {
	f, err := proxy.Open(ctx, &cfg.Config.Config, p)
	if err != nil {
		return nil, lambdahttp.Options{}, err
	}
	api, err := cfg.Open(ctx, f.Parts, f.Members, cfg.Settings, true)
	if err != nil {
		return nil, lambdahttp.Options{}, err
	}
	go api.Server.PublishKeys(ctx) // the first call does not wait for it
	return f.Handler(ctx, api.Fleet, api.Server)
}
