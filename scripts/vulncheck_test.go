package scripts

import (
	"os"
	"strings"
	"testing"
)

// TestVulncheckWithoutDatabase fails if a missing database looks like a successful check, or stops work offline.
func TestVulncheckWithoutDatabase(t *testing.T) {
	for _, tt := range []struct {
		args     []string
		wantCode int
	}{{nil, 0}, {[]string{"yes"}, 1}} {
		cmd := script(t, "./vulncheck", tt.args...)
		cmd.Env = append(os.Environ(), "GOVULNDB=file://"+t.TempDir())
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.wantCode || !strings.Contains(string(out), "NOT CHECKED") {
			t.Errorf("vulncheck %q: exit code %d, want %d: %v\n%s", tt.args, code, tt.wantCode, err, out)
		}
	}
}
