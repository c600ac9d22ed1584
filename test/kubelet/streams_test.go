package kubelet_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	corev1 "k8s.io/api/core/v1"
)

func TestExec(t *testing.T) {
	t.Parallel()
	name := runPod(t, func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "a"}}
		p.Spec.Containers[0].WorkingDir = "/work"
	})
	tests := map[string]struct {
		script string
		want   result
	}{
		"output":      {"echo out; echo err >&2", result{"out\n", "err\n", 0}},
		"exit code":   {"echo out; exit 42", result{"out\n", "command terminated with exit code 42\n", 42}},
		"killed":      {"kill -KILL $$", result{"", "command terminated with exit code 137\n", 137}},
		"environment": {"echo $A ${HOSTNAME}", result{"a " + name + "\n", "", 0}},
		"directory":   {`[ "$PWD" = "$CONTAINER_ROOT/work" ] && echo right`, result{"right\n", "", 0}},
		"no input":    {"cat", result{}},
		"background":  {"sleep 1000 & echo started", result{"started\n", "", 0}},
	}
	for name2, test := range tests {
		t.Run(strings.ReplaceAll(name2, " ", "-"), func(t *testing.T) {
			t.Parallel()
			if got := kubectl(t, nil, "exec", name, "--", "sh", "-c", test.script); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	t.Run("no such program", func(t *testing.T) {
		t.Parallel()
		if got := kubectl(t, nil, "exec", name, "--", "no-such-program"); got.code != 1 ||
			!strings.Contains(got.stderr, "executable file not found") {
			t.Errorf("got %+v", got)
		}
	})
}

func randomFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "random")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.CopyN(file, rand.Reader, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExecReadsToTheEnd: the end of the client's input is the end of the command's input.
func TestExecReadsToTheEnd(t *testing.T) {
	t.Parallel()
	name := runPod(t)
	const size = 5_000_000
	input, err := os.ReadFile(randomFile(t, size))
	if err != nil {
		t.Fatal(err)
	}
	var got result
	// The API server closes its connection to kubectl while kubectl may send a ping. TCP then resets the connection, and
	// kubectl loses what it has not read.
	waittest.Until(t, "the API server does not reset the connection", func() bool {
		got = kubectl(t, bytes.NewReader(input), "exec", "-i", name, "--", "cat")
		return got.code == 0 || !strings.Contains(got.stderr, "connection reset by peer")
	})
	if got.code != 0 || got.stdout != string(input) {
		t.Errorf("exit code %d, %d bytes, want %d: %s", got.code, len(got.stdout), size, got.stderr)
	}
	// A command that does not read ends, too. The API server sometimes loses its exit code.
	waittest.Until(t, "a command that does not read ends", func() bool {
		got := kubectl(t, bytes.NewReader(input), "exec", "-i", name, "--", "echo", "done")
		return got.stdout == "done\n" && got.code == 0
	})
}

func TestCopy(t *testing.T) {
	t.Parallel()
	name := runPod(t)
	there := randomFile(t, 50<<20)
	back := filepath.Join(t.TempDir(), "back")
	must(t, "cp", there, name+":copied")
	must(t, "cp", name+":copied", back)
	a, err := os.ReadFile(there)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(back)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the file changed on its way")
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	name := runPod(t, script("while read x; do echo got $x; done; echo end"), restart(corev1.RestartPolicyNever),
		func(p *corev1.Pod) {
			p.Spec.Containers[0].Stdin = true
			p.Spec.Containers[0].StdinOnce = true
		})
	got := kubectl(t, strings.NewReader("one\ntwo\n"), "attach", "-i", "-q", name)
	if got.stdout != "got one\ngot two\nend\n" || got.code != 0 {
		t.Errorf("got %+v", got)
	}
	p := waitPod(t, name, "ends", over)
	if p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase %s", p.Status.Phase)
	}
	if got := must(t, "logs", name); got != "got one\ngot two\nend\n" {
		t.Errorf("log %q", got)
	}
}

// TestAttachAgain: stdin outlives a client unless the pod specifies stdinOnce.
func TestAttachAgain(t *testing.T) {
	t.Parallel()
	name := runPod(t, script("while read x; do echo got $x; done"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Stdin = true
	})
	for _, word := range []string{"one", "two"} {
		cmd := command(t, "attach", "-i", "-q", name)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(stdin, word+"\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "got "+word+"\n" {
			t.Fatal(line, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
	}
}

func TestDebug(t *testing.T) {
	t.Parallel()
	name := runPod(t)
	must(t, "debug", name, "--image=none", "-c", "debugger", "--", "sh", "-c", "echo inside; exit 4")
	waitPod(t, name, "has an ephemeral container that ended", func(p *corev1.Pod) bool {
		s := p.Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Terminated != nil && s[0].State.Terminated.ExitCode == 4
	})
	if got := must(t, "logs", name, "-c", "debugger"); got != "inside\n" {
		t.Errorf("log %q", got)
	}
	if !ready(getPod(t, name)) {
		t.Error("the pod is not ready any more")
	}
}
