package plugin

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

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
			args := supervised(Options{Limit: waittest.Patience}, filepath.Join(prog.dir, "plugin"), nil)
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

// TestPluginsShareTerminal: a plugin that asks for a password must not get that of another cluster.
func TestPluginsShareTerminal(t *testing.T) {
	terminal, stdin, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer stdin.Close()
	asks := filepath.Join(t.TempDir(), "asks")
	prog := newProgram(t, "v1", "mkdir '"+asks+`' && read password && rmdir '`+asks+`' &&
		echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",`+
		`"status":{"token":"'"$password"'"}}'`)
	tokens := make(chan string)
	lockDir := t.TempDir()
	for range 2 {
		args := supervised(Options{Limit: waittest.Patience, LockDir: lockDir}, filepath.Join(prog.dir, "plugin"), nil)
		cmd := exec.CommandContext(t.Context(), ownProgram(), args...)
		cmd.Stdin = stdin
		go func() {
			output, err := cmd.Output()
			credential := clientauthenticationv1.ExecCredential{Status: &clientauthenticationv1.ExecCredentialStatus{}}
			if err = errors.Join(err, json.Unmarshal(output, &credential)); err != nil {
				t.Error(err)
			}
			tokens <- credential.Status.Token
		}()
	}
	for n, password := range []string{"one", "two"} {
		waittest.Until(t, "a plugin asks", func() bool {
			_, err := os.Stat(asks)
			return err == nil && strings.Count(prog.read("runs"), "run\n") > n
		})
		if _, err := terminal.WriteString(password + "\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-tokens; got != password {
			t.Errorf("the token is %q, want %q", got, password)
		}
	}
	prog.wantRuns(2)
	if left, err := os.ReadDir(lockDir); err != nil || len(left) > 0 {
		t.Errorf("%q stays, %v", left, err)
	}
}

// TestWaitForTerminalEnds fails if a plugin that waits for a password could block those of all other clusters.
func TestWaitForTerminalEnds(t *testing.T) {
	terminal, stdin, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer stdin.Close()
	lockDir := t.TempDir()
	defer lockTerminal(t.Context(), lockDir, os.Getpid())()
	prog := newProgram(t, "v1", "exit 0")
	args := supervised(Options{Limit: time.Millisecond, LockDir: lockDir}, filepath.Join(prog.dir, "plugin"), nil)
	cmd := exec.CommandContext(t.Context(), ownProgram(), args...)
	cmd.Stdin = stdin
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != codeBusy {
		t.Errorf("%v, want exit code %d", err, codeBusy)
	}
	prog.wantRuns(0)
}

// TestOtherProgramsGoOn: the gateway itself must start, whatever its arguments are.
func TestOtherProgramsGoOn(t *testing.T) {
	defer func(args []string) { os.Args = args }(os.Args)
	for _, args := range [][]string{{"x"}, {"x", "--listen", "y"}, {"x", subcommand}, {"x", "a", "b", "c", "d", "e"}} {
		os.Args = args
		Main()
	}
}
