package bridge

import (
	"errors"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/pki"
)

func TestConfig(t *testing.T) {
	for _, tt := range []struct{ set, variable, problem string }{
		{"CLUSTERPASS_DRAIN_TIMEOUT=110s", "", ""},
		{"CLUSTERPASS_DRAIN_TIMEOUT=111s", "CLUSTERPASS_DRAIN_TIMEOUT", "want more than 0 and at most 1m50s"},
		{"CLUSTERPASS_DRAIN_TIMEOUT=0s", "CLUSTERPASS_DRAIN_TIMEOUT", "want more than 0 and at most 1m50s"},
		{"CLUSTERPASS_DRAIN_TIMEOUT=soon", "CLUSTERPASS_DRAIN_TIMEOUT", "want a duration"},
		{"CLUSTERPASS_DRAIN_DELAY=110s", "CLUSTERPASS_DRAIN_DELAY", "want less than CLUSTERPASS_DRAIN_TIMEOUT"},
		{"CLUSTERPASS_STREAM_IDLE_TIMEOUT=0s", "CLUSTERPASS_STREAM_IDLE_TIMEOUT", "want at least 1s"},
		{"CLUSTERPASS_MAX_STREAMS=0", "CLUSTERPASS_MAX_STREAMS", "want at least 1"},
		{"CLUSTERPASS_MAX_MESSAGE_BYTES=1", "CLUSTERPASS_MAX_MESSAGE_BYTES", "want at least 1024"},
		{"CLUSTERPASS_MAX_AGENTS=0", "CLUSTERPASS_MAX_AGENTS", "want at least 1"},
		{"CLUSTERPASS_TUNNEL_LISTEN=8444", "CLUSTERPASS_TUNNEL_LISTEN", "want host:port"},
		{"CLUSTERPASS_PEERS=bridge.internal:8444,bridge", "CLUSTERPASS_PEERS", "want host:port"},
		{"CLUSTERPASS_ADMIN_LISTEN=8081", "CLUSTERPASS_ADMIN_LISTEN", "want host:port"},
	} {
		t.Run(tt.set, func(t *testing.T) {
			ca, err := pki.LoadCA(t.TempDir(), "client-ca")
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("CLUSTERPASS_STORE", "dir:"+t.TempDir())
			t.Setenv("CLUSTERPASS_CLIENT_CA", string(ca.PEM()))
			variable, value, _ := strings.Cut(tt.set, "=")
			t.Setenv(variable, value)
			err = config.Load(&Config{})
			if tt.variable == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var bad *config.Error
			if !errors.As(err, &bad) || bad.Variable != tt.variable || !strings.Contains(bad.Problem, tt.problem) ||
				bad.Example == "" {
				t.Errorf("%+v", err)
			}
		})
	}
}
