// Command bootstrap runs functions/fleet on AWS Lambda's provided.al2023 runtime.
package main

import (
	"context"

	"github.com/clusterpass/clusterpass/functions/fleet"
	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

const about = "Clusterpass fleet function: serves REST requests to many member clusters as one. AWS Lambda runs it."

func main() {
	cfg := &fleet.Config{}
	config.Main(about, cfg, func() error {
		handler, opts, err := fleet.New(context.Background(), cfg, proxy.Process{IsFrozen: true})
		if err != nil {
			return err
		}
		lambdahttp.Start(handler, opts)
		return nil
	})
}
