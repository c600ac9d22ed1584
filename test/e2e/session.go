package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// Dialect is a protocol of kubectl for exec, attach, cp and port-forward.
type Dialect struct {
	Name string
	Env  []string
}

// Dialects are both protocols.
var Dialects = []Dialect{
	{"websocket", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"}},
	{"spdy", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}},
}

// Session is a program that runs beside the test and is killed when the test ends.
type Session struct {
	t      *testing.T
	What   string
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Lines  chan string // of standard output
	Stderr *waittest.Buffer
	done   chan struct{}
}

// WaitForLine returns the next line for which ok is true. The test fails if the program ends first.
func (s *Session) WaitForLine(what string, ok func(line string) bool) string {
	s.t.Helper()
	timeout := time.After(Patience)
	var seen []string
	for {
		select {
		case line, more := <-s.Lines:
			if more && ok(line) {
				return line
			}
			if seen = append(seen, line); more {
				continue
			}
			s.t.Fatalf("%s ended before %s\n%s\n%s", s.What, what, strings.Join(seen, "\n"), s.Stderr)
		case <-timeout:
			s.t.Fatalf("%s: no %s within %s\n%s\n%s", s.What, what, Patience, strings.Join(seen, "\n"), s.Stderr)
		}
	}
}

// Line returns the next line that contains want.
func (s *Session) Line(want string) string {
	s.t.Helper()
	return s.WaitForLine(want, func(l string) bool { return strings.Contains(l, want) })
}

// ExitCode waits for the end of the program and returns its exit code.
func (s *Session) ExitCode() int {
	s.t.Helper()
	go func() {
		for range s.Lines {
		}
	}()
	select {
	case <-s.done:
	case <-time.After(Patience):
		s.t.Fatalf("%s does not end\n%s", s.What, s.Stderr)
	}
	return s.Cmd.ProcessState.ExitCode()
}

// Start starts a kubectl as a Session.
func (k Kubectl) Start(t *testing.T, bin string, args ...string) *Session {
	t.Helper()
	return startCommand(t, "kubectl "+strings.Join(args, " "), func(ctx context.Context) *exec.Cmd { return k.Command(ctx, t, bin, args...) })
}

// startCommand starts a command as a Session of at most 15 minutes.
func startCommand(t *testing.T, what string, command func(ctx context.Context) *exec.Cmd) *Session {
	t.Helper()
	s := &Session{t: t, What: what, Lines: make(chan string, 1000), Stderr: &waittest.Buffer{}, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	s.Cmd = command(ctx)
	s.Cmd.Stderr = io.MultiWriter(s.Stderr, Printed)
	stdout, err := s.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if s.Stdin, err = s.Cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		for r := bufio.NewReader(stdout); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				select {
				case s.Lines <- strings.TrimSuffix(line, "\n"):
				case <-ctx.Done():
				}
			}
			if err != nil {
				break
			}
		}
		close(s.Lines)
		_ = s.Cmd.Wait() // ProcessState has what matters
	}()
	t.Cleanup(func() { cancel(); <-s.done })
	return s
}

// RunWith is Run with another kubectl and input. By websocket, older kubectls may discard bytes that arrive before they
// have opened their streams. They report it, and RunWith repeats the command.
func (k Kubectl) RunWith(t *testing.T, bin string, stdin io.Reader, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		cmd := k.Command(ctx, t, bin, args...)
		cmd.Stdin = stdin
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(&errOut, Printed)
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		if r := (Result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}); !strings.Contains(r.Stderr, "Unknown stream id") {
			return r
		}
		rewind(t, stdin)
	}
}

// rewind seeks to the beginning of an input that can be sought.
func rewind(t *testing.T, stdin io.Reader) {
	t.Helper()
	if again, ok := stdin.(io.Seeker); ok {
		if _, err := again.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
}

// PortForward starts kubectl port-forward to a port of the pod shell in a namespace, and returns its local address.
func PortForward(t *testing.T, k Kubectl, bin, namespace string, port int) (*Session, string) {
	t.Helper()
	s := k.Start(t, bin, "-n", namespace, "port-forward", "shell", fmt.Sprintf(":%d", port))
	line := s.Line("Forwarding from 127.0.0.1:")
	addr, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	return s, addr
}
