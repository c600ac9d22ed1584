package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Sink delivers events. It is safe for concurrent use.
type Sink interface {
	// Deliver delivers events, each a line of JSON, and returns how many of the first were accepted. The error wraps
	// ErrRejected if the sink would reject the following events again. It is a RejectedError if the sink rejected some of
	// the accepted number. Events may be delivered more than once.
	Deliver(ctx context.Context, events [][]byte) (accepted int, err error)
}

// ErrRejected means that a Sink does not accept these events, and would not accept them later.
var ErrRejected = errors.New("the events are rejected")

// RejectedError means that a Sink rejected some of the events that Deliver counts as accepted. It wraps ErrRejected.
type RejectedError struct {
	Events []int // indexes
	Why    string
}

// Error implements error.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("%d audit events are rejected: %s", len(e.Events), e.Why)
}

// Unwrap returns ErrRejected.
func (*RejectedError) Unwrap() error { return ErrRejected }

// Lines returns a Sink that writes each event with one Write. Closing it closes w if that is an io.Closer.
func Lines(w io.Writer) Sink { return &lines{to: w} }

type lines struct {
	mu     sync.Mutex
	to     io.Writer
	broken bool // the last event was written in part
}

// Deliver implements Sink. It ignores ctx: a Write to a file cannot be interrupted.
func (l *lines) Deliver(_ context.Context, events [][]byte) (accepted int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, line := range events {
		if l.broken {
			line = append([]byte("\n"), line...)
		}
		n, err := l.to.Write(line)
		if err != nil {
			l.broken = l.broken && n == 0 || n > 0
			return i, err
		}
		l.broken = false
	}
	return len(events), nil
}

func (l *lines) Close() error {
	if c, ok := l.to.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
