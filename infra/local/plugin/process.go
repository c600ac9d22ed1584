package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/filelock"
)

// subcommand is the first argument of a process that runs a plugin. client-go starts a plugin without any limit, so it
// gets this process in place of the plugin. The process has the plugin's environment.
const subcommand = "run-credential-plugin"

// Exit codes of the process that are not the plugin's.
const (
	codeTooSlow  = 240 + iota
	codeTooLarge // too much output
	codeInvalid  // output that is no ExecCredential
	codeMissing  // no such program
	codeEnded    // the gateway ended
	codeBusy     // another plugin used the terminal
)

var reasons = map[int]string{
	codeTooSlow:  "it did not finish in time and was ended",
	codeTooLarge: "it wrote too much output and was ended",
	codeInvalid:  "its output is no ExecCredential of client.authentication.k8s.io with a token or certificate",
	codeEnded:    "the gateway ended",
	codeBusy:     "another plugin used the terminal for too long",
}

const (
	maxOutput   = 1 << 20  // an ExecCredential has some KB
	maxMessages = 64 << 10 // bytes on standard error for each run
	killDelay   = 2 * time.Second
	parentCheck = 250 * time.Millisecond
)

// supervised returns the arguments with which this program runs a plugin.
func supervised(o Options, command string, args []string) []string {
	return append([]string{
		subcommand, o.Limit.String(), strconv.Itoa(os.Getpid()), os.Getenv("PATH"), o.LockDir, command,
	}, args...)
}

// ownProgram returns a path by which this program starts itself, also after its file was replaced.
func ownProgram() string {
	const linux = "/proc/self/exe"
	if _, err := os.Stat(linux); err == nil {
		return linux
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// isSupervisor reports whether this program calls Main. Without it, a plugin would start the whole program again.
var isSupervisor atomic.Bool

// Main runs a plugin and exits if a Plugin has started this process for that. Otherwise, it returns at once.
func Main() {
	isSupervisor.Store(true)
	if len(os.Args) < 7 || os.Args[1] != subcommand {
		return
	}
	limit, err := time.ParseDuration(os.Args[2])
	parent, err2 := strconv.Atoi(os.Args[3])
	if err := errors.Join(err, err2); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(supervise(limit, parent, os.Args[4], os.Args[5], os.Args[6], os.Args[7:]))
}

var (
	errTooSlow  = errors.New("it did not finish in time")
	errTooLarge = errors.New("it wrote too much output")
	errEnded    = errors.New("the gateway ended")
	errBusy     = errors.New("another plugin used the terminal")
)

// supervise runs a plugin with the environment and standard input of this process, and writes its output if that is an
// ExecCredential. It returns the exit code. path is the PATH by which kubectl would find the program. lockDir is
// Options.LockDir. The limit applies to the wait for the terminal, and then to the plugin.
func supervise(limit time.Duration, parent int, path, lockDir, command string, args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go endWith(ctx, parent, signals, cancel)
	isTerminal := term.IsTerminal(int(os.Stdin.Fd()))
	if isTerminal && lockDir != "" {
		busy := time.AfterFunc(limit, func() { cancel(errBusy) })
		defer lockTerminal(ctx, lockDir, parent)()
		busy.Stop()
	}
	slow := time.AfterFunc(limit, func() { cancel(errTooSlow) })
	defer slow.Stop()

	env := os.Environ()
	_ = os.Setenv("PATH", path)
	cmd := exec.CommandContext(ctx, command, args...) //nolint:gosec // the user's own kubeconfig names the program
	output := &bounded{max: maxOutput, exceeded: func() { cancel(errTooLarge) }}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.WaitDelay = env, os.Stdin, output, killDelay
	if isTerminal {
		cmd.Stderr = os.Stderr // only the terminal's own group may read from it
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	} else {
		cmd.Stderr = &bounded{max: maxMessages, next: os.Stderr}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	}
	err := cmd.Run()
	if cmd.Process != nil && cmd.SysProcAttr != nil && ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children, too
	}
	return report(command, cmd, context.Cause(ctx), err, output.buffer.Bytes())
}

// lockTerminal blocks until no other plugin of the gateway uses the terminal, or until ctx ends. Two plugins that read
// from it at once would get each other's passwords. If the lock cannot be used, it returns without the lock.
func lockTerminal(ctx context.Context, lockDir string, gateway int) (unlock func()) {
	dir, err := os.OpenRoot(lockDir)
	if err != nil {
		return func() {}
	}
	name := fmt.Sprintf("terminal-%d.lock", gateway)
	lock, err := filelock.Lock(ctx, dir, name, filelock.Exclusive)
	return func() {
		if err == nil {
			_ = dir.Remove(name) // those that wait create it again
			_ = lock.Close()
		}
		_ = dir.Close()
	}
}

// report explains a failure on standard error, or writes the output.
func report(command string, cmd *exec.Cmd, ended, err error, output []byte) int {
	code := 0
	switch {
	case errors.Is(ended, errTooSlow):
		code = codeTooSlow
	case errors.Is(ended, errTooLarge):
		code = codeTooLarge
	case errors.Is(ended, errEnded):
		code = codeEnded
	case errors.Is(ended, errBusy):
		code = codeBusy
	case cmd.ProcessState == nil: // err names the program, too
		_, _ = fmt.Fprintln(os.Stderr, "clusterpass: start the credential plugin:", err)
		return codeMissing
	case !cmd.ProcessState.Success():
		if code = cmd.ProcessState.ExitCode(); code < 0 || code >= codeTooSlow { // negative after a signal
			code = 1
		}
		return code // the plugin has explained it
	case !isCredential(output):
		code = codeInvalid
	default:
		_, _ = os.Stdout.Write(output)
		return 0
	}
	_, _ = fmt.Fprintf(os.Stderr, "clusterpass: the credential plugin %q failed: %s\n", command, reasons[code])
	return code
}

// isCredential prevents that client-go quotes invalid output, which may contain a token, in an error and in the log.
func isCredential(output []byte) bool {
	var credential clientauthenticationv1.ExecCredential // v1beta1 has the same fields
	err := yaml.Unmarshal(output, &credential)
	if err != nil || credential.Kind != "ExecCredential" || credential.Status == nil {
		return false
	}
	s := credential.Status
	return s.Token != "" || s.ClientCertificateData != "" && s.ClientKeyData != ""
}

// endWith cancels ctx when the parent process ends, or when a signal asks this process to end.
func endWith(ctx context.Context, parent int, signals <-chan os.Signal, cancel func(error)) {
	check := time.NewTicker(parentCheck)
	defer check.Stop()
	for os.Getppid() == parent {
		select {
		case <-check.C:
		case <-signals:
			cancel(errEnded)
			return
		case <-ctx.Done():
			return
		}
	}
	cancel(errEnded)
}

// bounded collects up to max bytes, or passes them to next. It drops the rest, and calls exceeded once.
type bounded struct {
	max      int
	next     io.Writer // nil collects
	exceeded func()    // optional
	once     sync.Once
	buffer   bytes.Buffer
	n        int
}

func (b *bounded) Write(p []byte) (int, error) {
	kept := p[:min(len(p), b.max-b.n)]
	b.n += len(kept)
	if len(kept) < len(p) && b.exceeded != nil {
		b.once.Do(b.exceeded)
	}
	if b.next == nil {
		b.buffer.Write(kept)
	} else if _, err := b.next.Write(kept); err != nil {
		return 0, err
	}
	return len(p), nil
}
