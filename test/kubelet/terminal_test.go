package kubelet_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
)

type terminal struct {
	*os.File
	t    *testing.T
	mu   sync.Mutex
	seen strings.Builder
	done chan int
}

func newTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	cmd := command(t, args...)
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 37, Cols: 101})
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{File: file, t: t, done: make(chan int, 1)}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := file.Read(buffer)
			term.mu.Lock()
			term.seen.Write(buffer[:n])
			term.mu.Unlock()
			if err != nil {
				break
			}
		}
		_ = cmd.Wait() // the exit code is sufficient
		term.done <- cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { file.Close() })
	return term
}

func (term *terminal) output() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

func (term *terminal) expect(text string) {
	term.t.Helper()
	defer func() {
		if term.t.Failed() {
			term.t.Logf("the terminal shows %q", term.output())
		}
	}()
	waittest.Until(term.t, fmt.Sprintf("the terminal shows %q", text), func() bool {
		return strings.Contains(term.output(), text)
	})
}

func (term *terminal) write(text string) {
	term.t.Helper()
	if _, err := term.WriteString(text); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) code() int {
	term.t.Helper()
	select {
	case code := <-term.done:
		return code
	case <-time.After(patience):
		term.t.Fatalf("kubectl does not end; the terminal shows %q", term.output())
		return 0
	}
}

func TestExecTerminal(t *testing.T) {
	t.Parallel()
	name := runPod(t)
	term := newTerminal(t, "exec", "-it", name, "--", "sh", "-c",
		`while [ "$(stty size)" != "37 101" ]; do sleep 0.05; done; echo sized; trap 'stty size' WINCH; echo trapped; `+
			`while [ ! -e end ]; do sleep 0.05; done; tty; exit 9`)
	term.expect("sized")
	term.expect("trapped")
	if err := pty.Setsize(term.File, &pty.Winsize{Rows: 12, Cols: 34}); err != nil {
		t.Fatal(err)
	}
	term.expect("12 34")
	must(t, "exec", name, "--", "touch", "end")
	term.expect("/dev/pts/")
	if code := term.code(); code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
}

// TestExecEndsWithItsTerminal: a shell hangs up when its client is gone.
func TestExecEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	name := runPod(t)
	cmd := command(t, "exec", "-it", name, "--", "sh", "-c",
		"trap 'touch hung-up; exit' HUP; echo ready; while :; do sleep 0.05; done")
	file, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	line, err := bufio.NewReader(file).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	if !strings.Contains(line, "ready") {
		t.Fatal(line, err)
	}
	waittest.Until(t, "the shell hangs up", func() bool {
		return kubectl(t, nil, "exec", name, "--", "test", "-e", "hung-up").code == 0
	})
}

func TestAttachTerminal(t *testing.T) {
	t.Parallel()
	name := runPod(t, script("while read x; do echo got $x of $(stty size); done"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Stdin, p.Spec.Containers[0].TTY = true, true
	})
	term := newTerminal(t, "attach", "-it", name)
	waittest.Until(t, "the container's terminal has the client's size", func() bool {
		term.write("word\n")
		return strings.Contains(term.output(), "got word of 37 101")
	})
	must(t, "delete", "pod", name, "--grace-period=1")
	term.code()
}

func TestRunWithTerminal(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, "run", "shell", "--rm", "-it", "--image=none", "--restart=Never", "--", "sh", "-c",
		"read x; echo you said $x; read x; exit 3")
	term.expect("press")
	term.write("hello\n")
	term.expect("you said hello")
	term.write("\n")
	if code := term.code(); code != 3 {
		t.Errorf("exit code %d, want 3\n%s", code, term.output())
	}
	if !strings.Contains(term.output(), "deleted") {
		t.Errorf("the pod was not deleted: %q", term.output())
	}
}
