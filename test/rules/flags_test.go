package rules

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/cluster/build"
)

// TestFlagsOfTheCompiler fails if test clusters are built with other flags than those of the Makefile. Every package
// would then be compiled twice.
func TestFlagsOfTheCompiler(t *testing.T) {
	want := "-trimpath '" + build.CompilerFlags(t.Context()) + "'\n"
	cmd := exec.CommandContext(t.Context(), "make", "--silent", "--no-print-directory", "goflags")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), want) {
		t.Errorf("make goflags prints %q (%v), want %q at the end", out, err, want)
	}
}
