package kubelet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// drainQuiet is how long output must be silent to count as finished, after the main process has ended. A background
// process may keep the pipe open forever.
const drainQuiet = 250 * time.Millisecond

type stdio struct {
	stdin, stdout, stderr *os.File // our ends; nil for unused ones
	theirs                [3]*os.File
}

// newStdio makes the pipes that are wanted; the process gets the null device for the others.
func newStdio(stdin, stdout, stderr bool) (*stdio, error) {
	s := &stdio{}
	var err error
	open := func(wanted bool, i int) (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if wanted {
			r, w, err = os.Pipe()
			return r, w
		}
		s.theirs[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		return nil, nil
	}
	if r, w := open(stdin, 0); r != nil {
		s.theirs[0], s.stdin = r, w
	}
	if r, w := open(stdout, 1); r != nil {
		s.stdout, s.theirs[1] = r, w
	}
	if r, w := open(stderr, 2); r != nil {
		s.stderr, s.theirs[2] = r, w
	}
	if err != nil {
		s.closeOurs()
		s.closeTheirs()
		return nil, err
	}
	return s, nil
}

func (s *stdio) closeTheirs() {
	for _, f := range s.theirs {
		if f != nil {
			f.Close()
		}
	}
}

func (s *stdio) closeOurs() {
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// drain copies output until all writers have ended, or after exited until there is no more data for the duration quiet.
func drain(dst io.Writer, src *os.File, exited <-chan struct{}, quiet time.Duration) error {
	returned := make(chan struct{})
	defer close(returned)
	go func() {
		select {
		case <-exited:
			_ = src.SetReadDeadline(time.Now()) // wakes a read that waits without a deadline
		case <-returned:
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		var armed time.Time
		select {
		case <-exited:
			armed = time.Now()
			_ = src.SetReadDeadline(armed.Add(quiet))
		default:
		}
		n, err := src.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) && !armed.IsZero() {
			// On a busy machine the deadline may pass before the read starts, which then returns nothing.
			n = available(src, buffer)
		}
		if n > 0 {
			if _, err := dst.Write(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return nil // the end; from a terminal it is an error
		case n <= 0 && !armed.IsZero() && time.Since(armed) >= quiet:
			return nil
		}
	}
}

// available reads the available data without waiting, regardless of the deadline.
func available(src *os.File, p []byte) (n int) {
	raw, err := src.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), p) }) // closed or at its end: there is nothing
	return max(n, 0)
}

// openTerminal returns our side, whose reads end when it is closed, and the process's side.
func openTerminal() (ours, theirs *os.File, err error) {
	blocking, theirs, err := pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), blocking.Name()), theirs, nil
}

func followSize(terminal *os.File, resize <-chan remotecommand.TerminalSize) {
	raw, err := terminal.SyscallConn()
	for size := range resize {
		if err != nil {
			continue // closed; the sender must not block
		}
		_ = raw.Control(func(fd uintptr) {
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
		})
	}
}
