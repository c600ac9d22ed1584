package e2e

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// dialect is how kubectl speaks for exec, attach, cp and port-forward.
type dialect struct {
	name string
	env  []string
}

var dialects = []dialect{
	{"websocket", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"}},
	{"spdy", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}},
}

// kubectls are the one on PATH and the newest, which is built with the clusters and is every other test's.
func kubectls() map[string]string {
	if clusters.BuiltKubectl() == clusters.Kubectl() {
		return map[string]string{"PATH": clusters.Kubectl()}
	}
	return map[string]string{"newest": clusters.BuiltKubectl(), "PATH": clusters.Kubectl()}
}

// session is a program that runs beside the test.
type session struct {
	t      *testing.T
	what   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of stdout
	errOut *lockedBuffer
	done   chan struct{}
}

// start runs kubectl until it ends or the test does.
func (k kubectl) start(t *testing.T, bin string, args ...string) *session {
	t.Helper()
	return begin(t, "kubectl "+strings.Join(args, " "), func(ctx context.Context) *exec.Cmd { return k.command(ctx, t, bin, args...) })
}

// begin runs a command until it ends or the test does, for a quarter of an hour at most.
func begin(t *testing.T, what string, command func(ctx context.Context) *exec.Cmd) *session {
	t.Helper()
	s := &session{t: t, what: what, lines: make(chan string, 1000), errOut: &lockedBuffer{}, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	s.cmd = command(ctx)
	s.cmd.Stderr = io.MultiWriter(s.errOut, printed)
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		for r := bufio.NewReader(stdout); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				select {
				case s.lines <- strings.TrimSuffix(line, "\n"):
				case <-ctx.Done():
				}
			}
			if err != nil {
				break
			}
		}
		close(s.lines)
		_ = s.cmd.Wait() // ProcessState has what matters
	}()
	t.Cleanup(func() { cancel(); <-s.done })
	return s
}

func (k kubectl) command(ctx context.Context, t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, bin, k.flags(t, args)...)
	cmd.Env = append(append(os.Environ(), "KUBECACHEDIR="+t.TempDir()), k.env...)
	// A kubectl that starts another one takes it along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// wants returns the next line for which ok is true.
func (s *session) wants(what string, ok func(line string) bool) string {
	s.t.Helper()
	timeout := time.After(patience)
	var seen []string
	for {
		select {
		case line, more := <-s.lines:
			if more && ok(line) {
				return line
			}
			if seen = append(seen, line); more {
				continue
			}
			s.t.Fatalf("%s ended before %s\n%s\n%s", s.what, what, strings.Join(seen, "\n"), s.errOut)
		case <-timeout:
			s.t.Fatalf("%s: no %s within %s\n%s\n%s", s.what, what, patience, strings.Join(seen, "\n"), s.errOut)
		}
	}
}

func (s *session) line(want string) string {
	s.t.Helper()
	return s.wants(want, func(l string) bool { return strings.Contains(l, want) })
}

// ends waits for kubectl's exit code.
func (s *session) ends() int {
	s.t.Helper()
	go func() {
		for range s.lines {
		}
	}()
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Fatalf("%s does not end\n%s", s.what, s.errOut)
	}
	return s.cmd.ProcessState.ExitCode()
}

// runWith is run with another kubectl and input. By websocket, older kubectls may discard what arrives before they have made their
// streams: they say so, and are run again.
func (k kubectl) runWith(t *testing.T, bin string, stdin io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		cmd := k.command(ctx, t, bin, args...)
		cmd.Stdin = stdin
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(&errOut, printed)
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		if r := (result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}); !strings.Contains(r.stderr, "Unknown stream id") {
			return r
		}
		rewind(t, stdin)
	}
}

// rewind goes back to the beginning of an input that has one.
func rewind(t *testing.T, stdin io.Reader) {
	t.Helper()
	if again, ok := stdin.(io.Seeker); ok {
		if _, err := again.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
}

var streamPods sync.Map // by cluster

// newNamespace makes one in a cluster, with what the cluster puts into each: without the account, pods are refused.
func newNamespace(t *testing.T, k kubectl, name string) {
	t.Helper()
	k.must(t, "create", "namespace", name)
	settled(t, k, name)
}

// settled waits until a new namespace has what the cluster puts into each.
func settled(t *testing.T, k kubectl, name string) {
	t.Helper()
	eventually(t, func() bool {
		return k.run(t, "-n", name, "get", "serviceaccount/default", "configmap/kube-root-ca.crt").code == 0
	})
}

// withStreamPods makes the pods that the tests of streams talk to, in namespace streams.
func withStreamPods(t *testing.T, cluster string) {
	t.Helper()
	if _, done := streamPods.LoadOrStore(cluster, true); done {
		return
	}
	k := direct(cluster)
	newNamespace(t, k, "streams")
	k.must(t, "apply", "-f", manifest(t, "streams", streamPodsYAML))
	k.must(t, "-n", "streams", "rollout", "status", "deployment/still", "--timeout=4m")
	k.must(t, "wait", "-n", "streams", "--for=condition=Ready", "pod/shell", "pod/reader", "pod/talker-a", "pod/talker-b", "--timeout=4m")
	k.must(t, "wait", "-n", "streams", "--for=jsonpath={.status.phase}=Succeeded", "pod/finite-a", "pod/finite-b", "--timeout=4m")
}

const streamPodsYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: still}
spec:
  replicas: 1
  selector: {matchLabels: {app: still}}
  template:
    metadata:
      labels: {app: still}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: still, image: any}]
---
apiVersion: v1
kind: Pod
metadata: {name: shell, labels: {app: shell}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: shell, image: any}]
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: reader, image: any, stdin: true, command: [sh, -c, 'while read line; do echo "got $line"; done']}
---
apiVersion: v1
kind: Pod
metadata: {name: talker-a, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: talker, image: any, command: [sh, -c, 'i=0; while sleep 0.2; do echo "a $i"; i=$((i+1)); done']}
---
apiVersion: v1
kind: Pod
metadata: {name: talker-b, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: talker, image: any, command: [sh, -c, 'i=0; while sleep 0.2; do echo "b $i"; i=$((i+1)); done']}
---
apiVersion: v1
kind: Pod
metadata: {name: finite-a, labels: {app: finite}}
spec:
  restartPolicy: Never
  containers:
  - {name: finite, image: any, command: [sh, -c, 'echo one; echo two; echo three']}
---
apiVersion: v1
kind: Pod
metadata: {name: finite-b, labels: {app: finite}}
spec:
  restartPolicy: Never
  containers:
  - {name: finite, image: any, command: [sh, -c, 'echo eins; echo zwei; echo drei']}
`

// sorted puts lines in an order that does not depend on which pod was faster.
func sorted(s string) string {
	lines := slices.Sorted(strings.Lines(s))
	return strings.Join(lines, "")
}
