package apiconfig

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestMachineryLog: messages of k8s.io/apiserver below a warning must not fill the log of the gateway.
func TestMachineryLog(t *testing.T) {
	var out bytes.Buffer
	log := MachineryLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for name, derived := range map[string]*slog.Logger{
		"the log itself": log, "with attributes": log.With("key", "value"), "with a group": log.WithGroup("group"),
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			derived.Info("quiet", "a", 1)
			derived.Warn("loud", "a", 1)
			if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
				t.Errorf("the log is %q", got)
			}
		})
	}
}
