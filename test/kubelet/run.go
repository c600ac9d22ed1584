package kubelet

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpass/clusterpass/test/kubelet/crilog"
	"github.com/clusterpass/clusterpass/test/kubelet/expansion"
	"github.com/clusterpass/clusterpass/test/kubelet/shim"
)

// drainPatience bounds logging after a container's end. It is only reached if an attached client does not read.
const drainPatience = 10 * time.Second

type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// run is one run of a container. Its methods are safe for concurrent use.
type run struct {
	id      string
	dir     string // the container's own directory
	workDir string
	log     *crilog.File
	started time.Time

	shim     *shim.Shim
	main     *shim.Process  // nil for a container without a command, which idles
	stdin    io.WriteCloser // nil without stdin
	once     bool           // stdin ends with the first attach
	terminal *os.File       // nil without a terminal
	stdout   *fanout
	stderr   *fanout // unused with a terminal

	asked    sync.Once     // signalled to end
	killOnce sync.Once     // guards killed
	killed   chan struct{} // closed to end the run at once

	unstarted, unready atomic.Bool // set by probes

	done  chan struct{} // closed after the end; then the following are valid
	code  int
	ended time.Time
}

// newRun returns a *startError with a run that has ended. Any other error means that something is missing.
func (p *pod) newRun(ctx context.Context, api *corev1.Pod, spec *corev1.Container, attempt int32) (*run, error) {
	if err := p.makeVolumes(ctx, api); err != nil {
		return nil, err
	}
	env, err := p.newEnvironment(ctx, api, spec)
	if err != nil {
		return nil, err
	}
	number := strconv.Itoa(int(attempt))
	r := &run{
		id:      "process://" + rand.Text(),
		dir:     filepath.Join(p.dir, "containers", spec.Name, number),
		started: time.Now(),
		once:    spec.StdinOnce,
		stdout:  &fanout{},
		stderr:  &fanout{},
		killed:  make(chan struct{}),
		done:    make(chan struct{}),
	}
	r.workDir = inside(r.dir, expansion.Expand(spec.WorkingDir, env.values))
	logPath := filepath.Join(p.dir, "logs", spec.Name, number+".log")
	// A failed attempt may have left parts.
	for _, path := range []string{r.dir, logPath} {
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("clear the container's directory: %w", err)
		}
	}
	for _, dir := range []string{r.dir, filepath.Dir(logPath)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the container's directory: %w", err)
		}
	}
	if err := p.mount(spec, r.dir, env.values); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.workDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the working directory: %w", err)
	}
	if r.log, err = crilog.Create(logPath); err != nil {
		return nil, err
	}
	argv := append(expansion.All(spec.Command, env.values), expansion.All(spec.Args, env.values)...)
	label := fmt.Sprintf("%s/%s", podName(api), spec.Name)
	if err := r.start(label, argv, env.process(api, r.dir), spec.Stdin, spec.TTY, p.notify); err != nil {
		_ = r.log.Close() // nothing was written
		close(r.done)
		return r, &startError{err}
	}
	return r, nil
}

func (r *run) start(label string, argv, env []string, stdin, tty bool, notify func()) error {
	var err error
	if r.shim, err = shim.Start(label, r.workDir, env); err != nil {
		return err
	}
	var pumps sync.WaitGroup
	if len(argv) > 0 {
		if err := r.startMain(shim.Command{Argv: argv, TTY: tty}, stdin, &pumps); err != nil {
			r.shim.Close()
			return err
		}
	}
	drained := make(chan struct{})
	go func() {
		pumps.Wait()
		r.discard()
		_ = r.log.Close() // data that could not be written is lost
		close(drained)
	}()
	go func() {
		defer notify()
		defer close(r.done)
		r.code = r.wait()
		r.ended = time.Now()
		select {
		case <-drained:
		case <-time.After(drainPatience):
		}
	}()
	return nil
}

func (r *run) wait() int {
	if r.main == nil {
		<-r.killed
		r.shim.Close()
		return 0
	}
	select {
	case <-r.main.Done():
	case <-r.killed:
	}
	r.shim.Close()
	<-r.main.Done()
	return r.main.ExitCode()
}

func (r *run) startMain(command shim.Command, stdin bool, pumps *sync.WaitGroup) error {
	if command.TTY {
		terminal, theirs, err := openTerminal()
		if err != nil {
			return err
		}
		defer theirs.Close()
		command.Env = append(command.Env, "TERM=xterm")
		if r.main, err = r.shim.Run(command, theirs, theirs, theirs); err != nil {
			terminal.Close()
			return err
		}
		r.terminal = terminal
		if stdin {
			r.stdin = noClose{terminal}
		}
		pumps.Go(func() { r.pump(terminal, crilog.Stdout, r.stdout) })
		return nil
	}
	s, err := newStdio(stdin, true, true)
	if err != nil {
		return err
	}
	defer s.closeTheirs()
	if r.main, err = r.shim.Run(command, s.theirs[0], s.theirs[1], s.theirs[2]); err != nil {
		s.closeOurs()
		return err
	}
	if s.stdin != nil {
		r.stdin = s.stdin
	}
	pumps.Go(func() { r.pump(s.stdout, crilog.Stdout, r.stdout) })
	pumps.Go(func() { r.pump(s.stderr, crilog.Stderr, r.stderr) })
	return nil
}

// pump copies output to the log and to attached clients, until every process that could write has ended.
func (r *run) pump(output *os.File, stream string, attached *fanout) {
	defer output.Close()
	log := r.log.Writer(stream)
	buffer := make([]byte, 32<<10)
	for {
		n, err := output.Read(buffer)
		// A log that cannot be written (e.g. a full disk) must not stop the container.
		_, _ = log.Write(buffer[:n])
		attached.write(buffer[:n])
		if err != nil { // the end; from a terminal it is an error
			_ = log.Close()
			return
		}
	}
}

// stop signals the container to end. It reports whether this was the first signal.
func (r *run) stop() (first bool) {
	r.asked.Do(func() {
		first = true
		if r.main == nil {
			r.kill()
			return
		}
		_ = r.main.Signal(syscall.SIGTERM) // fails if everything has ended
	})
	return first
}

func (r *run) kill() { r.killOnce.Do(func() { close(r.killed) }) }

func (r *run) discard() {
	r.stdout.close()
	r.stderr.close()
	if r.stdin != nil {
		_ = r.stdin.Close() // may be closed already
	}
}

// forget removes the remains of a run. A nil run has none.
func (r *run) forget() {
	if r == nil {
		return
	}
	r.discard()
	_ = os.RemoveAll(r.dir) // a remainder is deleted with the pod
	_ = r.log.Remove()
}

// noClose keeps a terminal open, which stdin shares with the output.
type noClose struct{ io.Writer }

func (noClose) Close() error { return nil }

// fanout copies output to any number of readers. A reader that does not read blocks the container.
type fanout struct {
	mu      sync.Mutex
	readers []*io.PipeWriter
	closed  bool
}

// attach returns a reader of all further output. Closing it detaches.
func (f *fanout) attach() *io.PipeReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, w := io.Pipe()
	if f.closed {
		_ = w.Close() // closing a pipe never fails
	} else {
		f.readers = append(f.readers, w)
	}
	return r
}

func (f *fanout) write(p []byte) {
	if len(p) == 0 {
		return
	}
	f.mu.Lock()
	readers := f.readers
	f.mu.Unlock()
	for _, w := range readers {
		if _, err := w.Write(p); err != nil {
			f.detach(w)
		}
	}
}

func (f *fanout) detach(gone *io.PipeWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []*io.PipeWriter
	for _, w := range f.readers {
		if w != gone {
			left = append(left, w)
		}
	}
	f.readers = left
}

func (f *fanout) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, w := range f.readers {
		_ = w.Close() // as above
	}
	f.readers = nil
}
