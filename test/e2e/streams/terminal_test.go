package streams_test

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/creack/pty"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// terminal runs a command in a pseudo-terminal of 33 rows and 111 columns.
type terminal struct {
	*os.File

	out    *waittest.Buffer // output of the command
	cmd    *exec.Cmd
	copied chan struct{} // closed when out is complete
}

func startTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	cmd.SysProcAttr, cmd.Cancel = nil, nil // pty makes a session of its own
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 111})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	x := &terminal{tty, &waittest.Buffer{}, cmd, make(chan struct{})}
	go func() {
		defer close(x.copied)
		_, _ = io.Copy(x.out, tty)
	}()
	return x
}

// wait waits until the command has ended and out is complete.
func (x *terminal) wait() error {
	err := x.cmd.Wait()
	_ = x.Close()
	<-x.copied
	return err
}
