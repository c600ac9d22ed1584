package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/clusterpass/clusterpass/functions/control"
	"github.com/clusterpass/clusterpass/functions/fleet"
	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/route"
)

const targetGroup = "arn:aws:elasticloadbalancing:local:000000000000:targetgroup/clusterpass/0000000000000000"

// Limits of functions. AWS allows more processes and keeps them for longer.
const (
	functionTimeout = 29 * time.Second
	maxProcesses    = 64
	maxPerCluster   = maxProcesses / 4
	maxPerCaller    = maxProcesses / 2
	queuePerCaller  = maxProcesses
	queueTimeout    = 10 * time.Second
	maxQueue        = 4 * maxProcesses
	maxIdle         = 5 * time.Minute
)

type functions struct {
	dir string // contains NAME/bootstrap of each function
	env map[string]string
	log io.Writer

	processes []*lambda.Function
}

func (f *functions) open(backend route.Backend) (http.Handler, error) {
	fn, err := f.start(backend)
	if err != nil {
		return nil, err
	}
	return lambda.Target{Invoker: fn, Front: event.ALB{TargetGroupARN: targetGroup}}, nil
}

func (f *functions) close(ctx context.Context) error {
	var errs []error
	for _, p := range f.processes {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

func (f *functions) start(backend route.Backend) (*lambda.Function, error) {
	bootstrap := filepath.Join(f.dir, string(backend), "bootstrap")
	if _, err := os.Stat(bootstrap); err != nil {
		return nil, &config.Error{
			Variable: "CLUSTERPASS_FUNCTIONS_DIR", Problem: err.Error() + " (make build-local builds it)",
			Example: "dist/local/functions",
		}
	}
	env := maps.Clone(f.env)
	maps.Copy(env, lambda.RuntimeVariables(string(backend)))
	fn, err := lambda.NewFunction(lambda.Config{
		Name:           string(backend),
		Bootstrap:      bootstrap,
		Env:            env,
		Timeout:        functionTimeout,
		InitTimeout:    functionTimeout, // AWS repeats a slow start with this timeout
		MaxConcurrency: maxProcesses,
		MaxQueue:       maxQueue,
		QueueTimeout:   queueTimeout,
		MaxIdle:        maxIdle,
		Output:         f.log,
	})
	if err != nil {
		return nil, err
	}
	f.processes = append(f.processes, fn)
	return fn, nil
}

// functionEnvironment returns the variables of functions/control. They include those of the other functions.
func (c *Config) functionEnvironment(env assembly.Env, api apiconfig.Options) map[string]string {
	return config.Environment(&control.Config{
		Config: fleet.Config{
			Config:   proxy.Config{Env: env, MTLSTargetGroup: targetGroup},
			Settings: c.Settings,
		},
		Options: api,
	})
}
