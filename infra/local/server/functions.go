package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/pki"
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
	cfg      *Config
	env      assembly.Env
	api      apiconfig.Options
	clientCA *pki.CA
	log      io.Writer

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
	bootstrap := filepath.Join(f.cfg.FunctionsDir, string(backend), "bootstrap")
	if _, err := os.Stat(bootstrap); err != nil {
		return nil, &config.Error{
			Variable: "CLUSTERPASS_FUNCTIONS_DIR", Problem: err.Error() + " (make build-local builds it)",
			Example: "dist/local/functions",
		}
	}
	fn, err := lambda.NewFunction(lambda.Config{
		Name:           string(backend),
		Bootstrap:      bootstrap,
		Env:            f.environment(backend),
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

func (f *functions) environment(backend route.Backend) map[string]string {
	vars := map[string]string{
		"CLUSTERPASS_STORE":             f.env.Store.String(),
		"CLUSTERPASS_CLIENT_CA":         string(f.clientCA.PEM()),
		"CLUSTERPASS_MTLS_TARGET_GROUP": targetGroup,
		"CLUSTERPASS_ALLOW_LOOPBACK":    strconv.FormatBool(f.env.AllowLoopback),
		"CLUSTERPASS_LOG_LEVEL":         f.env.LogLevel.String(),
		"CLUSTERPASS_URL":               string(f.env.URL),
		"CLUSTERPASS_AUTHENTICATION":    f.env.Authentication.String(),
		"CLUSTERPASS_CONTROL_PLANE":     f.cfg.ControlPlane,
		"CLUSTERPASS_WEBSOCKET_ORIGINS": strings.Join(f.env.Origins, ","),
	}
	maps.Copy(vars, f.env.Environment())
	if backend == route.ToControl {
		vars["CLUSTERPASS_SERVER_CA"] = string(f.api.ServerCA.PEM())
		if f.api.MaxPassTTL > 0 {
			vars["CLUSTERPASS_MAX_PASS_TTL"] = f.api.MaxPassTTL.String()
		}
	}
	if f.cfg.FleetDeadline > 0 {
		vars["CLUSTERPASS_FLEET_DEADLINE"] = f.cfg.FleetDeadline.String()
	}
	if f.cfg.BareWrites != "" {
		vars["CLUSTERPASS_FLEET_BARE_WRITES"] = string(f.cfg.BareWrites)
	}
	return vars
}
