package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
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

// SessionLimit is the time after which a Session is killed.
const SessionLimit = 15 * time.Minute

// Session is a program that runs beside the test and is killed when the test ends.
type Session struct {
	t      *testing.T
	Name   string
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Lines  chan string // of standard output
	Stderr *waittest.Buffer
	done   chan struct{}
}

// WaitForLine returns the next line for which ok is true. The test fails if the program ends first.
func (s *Session) WaitForLine(description string, ok func(line string) bool) string {
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
			s.t.Fatalf("%s ended before %s\n%s\n%s", s.Name, description, strings.Join(seen, "\n"), s.Stderr)
		case <-timeout:
			s.t.Fatalf("%s: no %s within %s\n%s\n%s", s.Name, description, Patience, strings.Join(seen, "\n"), s.Stderr)
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
		s.t.Fatalf("%s does not end\n%s", s.Name, s.Stderr)
	}
	return s.Cmd.ProcessState.ExitCode()
}

// Start starts a kubectl as a Session.
func (k Kubectl) Start(t *testing.T, bin string, args ...string) *Session {
	t.Helper()
	return StartCommand(t, "kubectl "+strings.Join(args, " "), func(ctx context.Context) *exec.Cmd {
		return k.Command(ctx, t, bin, args...)
	})
}

// StartCommand starts a command as a Session of at most SessionLimit.
func StartCommand(t *testing.T, name string, command func(ctx context.Context) *exec.Cmd) *Session {
	t.Helper()
	return StartLongCommand(t, SessionLimit, name, command)
}

// StartLongCommand is StartCommand with another limit.
func StartLongCommand(t *testing.T, limit time.Duration, name string,
	command func(ctx context.Context) *exec.Cmd) *Session {
	t.Helper()
	s := &Session{t: t, Name: name, Lines: make(chan string, 1000), Stderr: &waittest.Buffer{}, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
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

// RunWith is Run with another kubectl and input. Older kubectls report lost bytes of websockets. RunWith then repeats
// the command.
func (k Kubectl) RunWith(t *testing.T, bin string, stdin io.Reader, args ...string) Result {
	t.Helper()
	r, err := k.tryWith(t.Context(), bin, stdin, args)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// RunTogether runs a command with two kubectls at once and returns both results. Each reads stdin from its beginning.
func RunTogether(t *testing.T, bin string, first, second Kubectl, stdin string, args ...string) (Result, Result) {
	t.Helper()
	var results [2]Result
	var errs [2]error
	var wg sync.WaitGroup
	for i, k := range []Kubectl{first, second} {
		wg.Go(func() { results[i], errs[i] = k.tryWith(t.Context(), bin, strings.NewReader(stdin), args) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return results[0], results[1]
}

// tryWith is RunWith for goroutines, which may not fail the test at once. An exit code is no error.
func (k Kubectl) tryWith(ctx context.Context, bin string, stdin io.Reader, args []string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		r, err := k.once(ctx, bin, stdin, args)
		if err != nil || !strings.Contains(r.Stderr, "Unknown stream id") {
			return r, err
		}
		if err := rewind(stdin); err != nil {
			return Result{}, err
		}
	}
}

func rewind(stdin io.Reader) error {
	if again, ok := stdin.(io.Seeker); ok {
		_, err := again.Seek(0, io.SeekStart)
		return err
	}
	return nil
}

// PortForward starts kubectl port-forward to a port of the pod shell, and returns its local address.
func PortForward(t *testing.T, k Kubectl, bin, namespace string, port int) (*Session, string) {
	t.Helper()
	s := k.Start(t, bin, "-n", namespace, "port-forward", "shell", fmt.Sprintf(":%d", port))
	line := s.Line("Forwarding from 127.0.0.1:")
	addr, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	return s, addr
}
