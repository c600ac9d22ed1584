package server

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const (
	startTimeout = 2 * time.Minute
	functionsDir = "../../../dist/local/functions" // make build-local builds them
)

// newConfig returns the default configuration, with free ports, the data in dir, and no contexts to register.
func newConfig(t *testing.T, dir string) *Config {
	t.Helper()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("CLUSTERPASS_DATA", dir)
	cfg := &Config{}
	if err := config.Load(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Listen, cfg.TunnelListen, cfg.Kubeconfig = "127.0.0.1:0", "127.0.0.1:0", filepath.Join(dir, "kubeconfig")
	cfg.FunctionsDir = functionsDir
	return cfg
}

// output is what a gateway has written so far.
type output struct{ progress, log waittest.Buffer }

// start runs a gateway until the test ends, and returns when it is ready.
func start(t *testing.T, cfg *Config) *output {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	out := &output{}
	go func() { ended <- Run(ctx, cfg, Output{&out.progress, &out.log}, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatalf("the gateway ended: %v", err)
	case <-time.After(startTimeout):
		t.Fatal("the gateway does not start")
	}
	return out
}
