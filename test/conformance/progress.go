package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

type progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func (p *progress) show(target string, ended int, total, state, spec string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.start).Round(time.Second)
	_, _ = fmt.Fprintf(p.out, "%6s  %-8s %3d/%s  %-7s  %s\n", elapsed, target, ended, total, state, spec)
}

// specLines finds ended specs in the log of ginkgo's -v, and shows them. The results of the run are in its report.
type specLines struct {
	progress *progress
	target   string

	line        []byte // the start of a line whose end is not written yet
	total, spec string
	ended       int
}

const maxLine = 4 << 10

// Write never fails.
func (l *specLines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, complete := bytes.Cut(p, []byte("\n"))
		l.line = append(l.line, part[:min(len(part), maxLine-len(l.line))]...)
		if p = rest; complete {
			l.read(string(l.line))
			l.line = l.line[:0]
		}
	}
	return n, nil
}

func (l *specLines) read(line string) {
	state := ""
	switch {
	case strings.HasPrefix(line, "Will run "): // Will run 88 of 7579 specs
		l.total = strings.Fields(line)[2]
	case strings.HasPrefix(line, "[sig-"): // the name, and then the labels: [sig-cli, Conformance]
		l.spec = line
		if i := strings.LastIndex(line, " [sig-"); i > 0 {
			l.spec = line[:i]
		}
	case strings.HasPrefix(line, "• [") && strings.HasSuffix(line, " seconds]"):
		state = string(passed) // • [0.259 seconds]
		if strings.Contains(line, "] [") {
			state = string(failed) // • [FAILED] [0.259 seconds]
		}
	case strings.HasPrefix(line, "S [SKIPPED]"):
		state = string(skipped)
	}
	if state != "" {
		l.ended++
		l.progress.show(l.target, l.ended, l.total, state, l.spec)
	}
}
