package server

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/pki"
)

// Any user with a client certificate named front-proxy-client could otherwise act as any other user.
func TestFrontProxyCAMustDifferFromClientCA(t *testing.T) {
	data := t.TempDir()
	ca, err := pki.LoadCA(filepath.Join(data, "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	document, err := yaml.Marshal(map[string]any{"frontProxy": map[string]any{
		"names": []string{"front-proxy-client"}, "ca": string(ca.PEM()),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, functions := range []Mode{Inline, Process} {
		t.Run(string(functions), func(t *testing.T) {
			t.Setenv("CLUSTERPASS_AUTHENTICATION", string(document))
			cfg := newConfig(t, data)
			cfg.Functions = functions
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			err := Run(ctx, cfg, Output{io.Discard, io.Discard}, func() {
				t.Error("the gateway accepts calls")
				stop()
			})
			var invalid *config.Error
			if !errors.As(err, &invalid) || invalid.Variable != "CLUSTERPASS_AUTHENTICATION" ||
				!strings.Contains(invalid.Problem, "frontProxy.ca contains the CA of client certificates") {
				t.Errorf("error %v", err)
			}
		})
	}
}
