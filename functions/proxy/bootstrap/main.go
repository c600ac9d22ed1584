// Command bootstrap runs functions/proxy on AWS Lambda's provided.al2023 runtime.
package main

import (
	"context"

	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

const about = "Clusterpass proxy function: serves REST requests to one member cluster. AWS Lambda runs it."

func main() {
	cfg := &proxy.Config{}
	config.Main(about, cfg, func() error {
		handler, opts, err := proxy.New(context.Background(), cfg, proxy.Process{IsFrozen: true})
		if err != nil {
			return err
		}
		lambdahttp.Start(handler, opts)
		return nil
	})
}
