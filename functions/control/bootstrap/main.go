// Command bootstrap runs functions/control on AWS Lambda's provided.al2023 runtime.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"

	"github.com/clusterpass/clusterpass/functions/control"
	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

const about = "Clusterpass control function: serves the gateway's own Kubernetes API. AWS Lambda runs it."

func main() {
	cfg := &control.Config{}
	config.Main(about, cfg, func() error {
		klog.SetSlogLogger(apiconfig.MachineryLog(cfg.NewLog(os.Stderr)))
		handler, opts, err := control.New(context.Background(), cfg, proxy.Process{IsFrozen: true})
		if err != nil {
			return err
		}
		debug.SetGCPercent(100) // the template sets GOGC=off, since collections are a fifth of a cold start
		lambdahttp.Start(handler, opts)
		return nil
	})
}
