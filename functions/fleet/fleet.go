// Package fleet is the function that answers one REST call to many member clusters, as if they were one.
package fleet

import (
	"context"
	"net/http"

	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/gateway/many"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

// Config is the function's configuration.
type Config struct {
	proxy.Config
	many.Settings
}

// New returns the function: functions/proxy with a fleet. frozen says that the process is stopped between calls, as Lambda does, and has
// one call at a time.
func New(ctx context.Context, cfg *Config, frozen bool) (http.Handler, lambdahttp.Options, error) {
	of := cfg.Config
	of.Fleet = cfg.Settings.Fleet //nolint:staticcheck // not Config's field of the same name
	return proxy.New(ctx, &of, frozen)
}
