package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/clusterpass/clusterpass/test/kubelet/shim"
)

const dialTimeout = 10 * time.Second

// ExecInContainer implements remotecommand.Executor. When ctx, the client's connection, ends, the command's pipes or
// terminal are closed. The command itself continues until the container ends, as in other runtimes.
func (r *run) ExecInContainer(ctx context.Context, _, _, _ string, argv []string, in io.Reader,
	out, errs io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(argv) == 0 {
		return errors.New("no command was given")
	}
	command := shim.Command{Argv: argv, Dir: r.workDir, TTY: tty}
	var process *shim.Process
	var err error
	if tty {
		process, err = r.execTerminal(ctx, command, in, out, resize)
	} else {
		process, err = r.execPipes(ctx, command, in, out, errs)
	}
	if ctx.Err() != nil {
		return nil // there is no receiver of the error
	}
	if err != nil {
		return err
	}
	if code := process.ExitCode(); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

func (r *run) execTerminal(ctx context.Context, command shim.Command, in io.Reader, out io.WriteCloser,
	resize <-chan remotecommand.TerminalSize) (*shim.Process, error) {
	terminal, theirs, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer terminal.Close()
	command.Env = append(command.Env, "TERM=xterm")
	process, err := r.shim.Run(command, theirs, theirs, theirs)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	if in != nil {
		// Ends with the client's connection, which is closed after the command has ended.
		go func() { _, _ = io.Copy(terminal, in) }()
	}
	go followSize(terminal, resize)
	return process, copyOutput(ctx, process, output{out, terminal})
}

func (r *run) execPipes(ctx context.Context, command shim.Command, in io.Reader,
	out, errs io.WriteCloser) (*shim.Process, error) {
	s, err := newStdio(in != nil, out != nil, errs != nil)
	if err != nil {
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	defer s.closeOurs()
	process, err := r.shim.Run(command, s.theirs[0], s.theirs[1], s.theirs[2])
	s.closeTheirs()
	if err != nil {
		return nil, err
	}
	if in != nil {
		go func() { // as above
			_, _ = io.Copy(s.stdin, in)
			s.stdin.Close() // the command sees the end of its input
		}()
	}
	return process, copyOutput(ctx, process, output{out, s.stdout}, output{errs, s.stderr})
}

type output struct {
	to   io.WriteCloser // nil to discard
	from *os.File
}

func copyOutput(ctx context.Context, process *shim.Process, outputs ...output) error {
	copied := make(chan error, len(outputs))
	wanted := 0
	for _, o := range outputs {
		if o.to == nil {
			continue
		}
		wanted++
		go func() {
			err := drain(o.to, o.from, process.Done(), drainQuiet)
			copied <- errors.Join(err, o.to.Close()) // the client must receive everything before the exit code
		}()
	}
	for range wanted {
		select {
		case err := <-copied:
			if err != nil {
				return fmt.Errorf("copy output: %w", err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-process.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AttachContainer implements remotecommand.Attacher. It connects a client to the main process until either ends.
func (r *run) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errs io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize) error {
	if r.terminal != nil {
		go followSize(r.terminal, resize)
	}
	var copying sync.WaitGroup
	for _, o := range []struct {
		to   io.WriteCloser
		from *fanout
	}{{out, r.stdout}, {errs, r.stderr}} {
		if o.to == nil {
			continue
		}
		reader := o.from.attach()
		detach := func() { _ = reader.Close() } // closing a pipe never fails
		stop := context.AfterFunc(ctx, detach)
		copying.Go(func() {
			defer stop()
			defer detach()
			_, _ = io.Copy(o.to, reader) // fails if the client is gone
			_ = o.to.Close()             // likewise
		})
	}
	if in != nil && r.stdin != nil {
		// Ends with the client's connection, which is closed after the container has ended.
		go func() {
			_, _ = io.Copy(r.stdin, in)
			if r.once {
				r.stdin.Close()
			}
		}()
	}
	copying.Wait()
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	return nil
}

// forwarder connects clients to ports of a pod's address, until ctx, the client's connection, ends.
type forwarder struct {
	ctx     context.Context
	address string
}

// Each side may close its half of the connection alone.
func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(f.ctx, "tcp", net.JoinHostPort(f.address, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(f.ctx, func() { conn.Close() })
	defer stop()
	go func() { // ends with the stream
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	if f.ctx.Err() != nil {
		return nil // the client is gone
	}
	return err
}
