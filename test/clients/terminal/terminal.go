// Package terminal runs a program in a pseudo-terminal and shows its screen to a test.
//
// Invariants:
//   - A test waits for a screen, never for output, which may be overwritten.
//   - Every failure of a wait prints the screen.
//   - The program and its children end with the test.
package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// Columns and Rows are the size of each terminal. Long names of objects must fit into a table.
const (
	Columns = 200
	Rows    = 50
)

// Terminal is a pseudo-terminal with one program. Its methods belong to the test's own goroutine.
type Terminal struct {
	tb     testing.TB
	name   string
	keys   io.Writer
	screen vt10x.Terminal
	ended  chan struct{}
}

// Start starts cmd in a terminal of type xterm-256color. The program is killed when the test ends.
func Start(tb testing.TB, cmd *exec.Cmd) *Terminal {
	tb.Helper()
	cmd.Env = append(cmd.Environ(), "TERM=xterm-256color", "COLORTERM=", "LANG=C.UTF-8")
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: Rows, Cols: Columns})
	if err != nil {
		tb.Fatalf("start %s in a terminal: %v", cmd.Path, err)
	}
	// The emulator answers some sequences of the program, such as a question for the position of the cursor.
	screen := vt10x.New(vt10x.WithSize(Columns, Rows), vt10x.WithWriter(file))
	t := &Terminal{tb: tb, name: cmd.Path, keys: file, screen: screen, ended: make(chan struct{})}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		output := bufio.NewReader(file)
		var err error
		for err == nil {
			err = screen.Parse(output)
		}
	}()
	go func() {
		defer close(t.ended)
		_ = cmd.Wait() // the exit code of an interactive program proves nothing
	}()
	tb.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // pty starts a session, so the group has its children
		<-t.ended
		_ = file.Close()
		<-shown
	})
	return t
}

// Screen returns the lines of the screen without trailing blanks.
func (t *Terminal) Screen() string {
	var text strings.Builder
	for line := range strings.Lines(t.screen.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return strings.TrimRight(text.String(), "\n")
}

// Type types a text, or keys such as [Escape].
func (t *Terminal) Type(keys string) {
	t.tb.Helper()
	if _, err := io.WriteString(t.keys, keys); err != nil {
		t.tb.Fatalf("type %q: %v\n%s", keys, err, t.Screen())
	}
}

// Keys for Type.
const (
	Enter  = "\r"
	Escape = "\x1b"
	Tab    = "\t"
	CtrlD  = "\x04"
)

// WaitFor waits until the screen shows all texts.
func (t *Terminal) WaitFor(texts ...string) {
	t.tb.Helper()
	t.WaitUntil(fmt.Sprintf("the screen shows %q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// WaitUntil waits until ok returns true for the screen.
func (t *Terminal) WaitUntil(what string, ok func(screen string) bool) {
	t.tb.Helper()
	err := waittest.Poll(t.tb.Context(), func(context.Context) error {
		if screen := t.Screen(); !ok(screen) {
			return fmt.Errorf("the screen:\n%s", screen)
		}
		return nil
	})
	if err != nil {
		t.tb.Fatalf("%s: not %s within %v; %v", t.name, what, waittest.Patience, err)
	}
}

// WaitForEnd waits until the program has ended.
func (t *Terminal) WaitForEnd() {
	t.tb.Helper()
	t.WaitUntil("ended", func(string) bool {
		select {
		case <-t.ended:
			return true
		default:
			return false
		}
	})
}
