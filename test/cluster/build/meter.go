package build

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A meter shows the progress of one go build: in one line of a terminal, elsewhere in a line now and then.
type meter struct {
	out      io.Writer
	what     string
	terminal bool
	delay    time.Duration // a shorter build is not shown
	start    time.Time

	mu                sync.Mutex
	fetched, compiled int
	tail              []string // the last lines of the compiler's errors
	shown             bool
}

// report ignores errors, because progress is not essential.
func report(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

const maxTail = 40

func newMeter(out io.Writer, what string) *meter {
	m := &meter{out: out, what: what, start: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		m.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return m
}

// run's error ends with the compiler's output.
func (m *meter) run(cmd *exec.Cmd) error {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if m.delay == 0 {
		m.show("building")
	}
	ctx, stop := context.WithCancel(context.Background())
	var ticking sync.WaitGroup
	ticking.Go(func() { m.tick(ctx) })
	err = during(cmd, func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			m.count(lines.Text())
		}
		_, _ = io.Copy(io.Discard, stderr) // after an overlong line, so that the compiler never blocks
	})
	stop()
	ticking.Wait()

	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(m.tail, "\n"))
	}
	if !m.shown {
		return nil
	}
	m.show("built")
	if m.terminal {
		report(m.out, "\n")
	}
	return nil
}

func (m *meter) count(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		m.fetched++
	case !strings.ContainsAny(line, " :#"): // -v prints bare import paths
		m.compiled++
	default:
		m.tail = append(m.tail, line)
		if len(m.tail) > maxTail {
			m.tail = m.tail[1:]
		}
	}
}

func (m *meter) tick(ctx context.Context) {
	every := 15 * time.Second
	if m.terminal {
		every = time.Second
	}
	next := m.delay
	if next == 0 {
		next = every
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
			m.show("building")
			next = every
		}
	}
}

func (m *meter) show(verb string) {
	m.mu.Lock()
	fetched, compiled := m.fetched, m.compiled
	m.shown = true
	m.mu.Unlock()
	line := fmt.Sprintf("%s %s: %s", verb, m.what, time.Since(m.start).Round(time.Second))
	if compiled > 0 {
		line += fmt.Sprintf(", %d packages compiled", compiled)
	}
	if fetched > 0 {
		line += fmt.Sprintf(", %d modules fetched", fetched)
	}
	if m.terminal {
		report(m.out, "\r\x1b[K%s", line)
		return
	}
	report(m.out, "%s\n", line)
}
