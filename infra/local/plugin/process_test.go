package plugin

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestPluginEndsWithGateway: a plugin that hangs must not outlive the gateway, however that ends.
func TestPluginEndsWithGateway(t *testing.T) {
	for _, tt := range []struct {
		name   string
		parent int // the process that counts as the gateway; 0 for this one
		signal syscall.Signal
	}{
		{"the gateway is killed", 1, 0}, // the parent is another process then
		{"ctrl-C", 0, syscall.SIGINT},
		{"the terminal closes", 0, syscall.SIGHUP},
		{"a service manager ends all processes", 0, syscall.SIGTERM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			prog := newProgram(t, "v1", hang)
			args := supervised(waittest.Patience, filepath.Join(prog.dir, "plugin"), nil)
			if tt.parent != 0 {
				args[2] = strconv.Itoa(tt.parent)
			}
			cmd := exec.CommandContext(t.Context(), ownProgram(), args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.signal != 0 {
				waittest.Until(t, "the plugin runs", func() bool { return isRunning(prog.read("self")) })
				if err := cmd.Process.Signal(tt.signal); err != nil {
					t.Fatal(err)
				}
			}
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != codeEnded {
				t.Errorf("%v, want exit code %d", err, codeEnded)
			}
			for _, process := range []string{"self", "child"} {
				waittest.Until(t, process+" has ended", func() bool { return !isRunning(prog.read(process)) })
			}
		})
	}
}

// TestOtherProgramsGoOn: the gateway itself must start, whatever its arguments are.
func TestOtherProgramsGoOn(t *testing.T) {
	defer func(args []string) { os.Args = args }(os.Args)
	for _, args := range [][]string{{"x"}, {"x", "--listen", "y"}, {"x", subcommand}, {"x", "a", "b", "c", "d", "e"}} {
		os.Args = args
		Main()
	}
}
