package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/utf8tail"
)

// Export writes a recording as one file in asciicast v2, for any player. Standard error is part of the output. Bytes
// that are no UTF-8 become U+FFFD. The exit status and the counts of a port-forward are markers. Lines of a session
// without a terminal get carriage returns.
//
// After an error that wraps a recording.Fault of the kind Cut, the file has all events.
func Export(ctx context.Context, w io.Writer, r *recording.Reader) error {
	x := &exporter{
		w: bufio.NewWriter(w), info: r.Info(), width: recording.DefaultWidth, height: recording.DefaultHeight,
		partial: map[recording.Type][]byte{},
	}
	for {
		e, err := r.Next(ctx)
		var fault *recording.Fault
		isCut := errors.As(err, &fault) && fault.Kind == recording.Cut
		if err != nil && !errors.Is(err, io.EOF) && !isCut {
			return err
		}
		if err == nil {
			if err := x.add(e); err != nil {
				return err
			}
			continue
		}
		if closeErr := x.close(); closeErr != nil {
			return closeErr
		}
		if isCut {
			return err
		}
		return nil
	}
}

type exporter struct {
	w             *bufio.Writer
	info          *recording.Info
	width, height uint16
	pending       []recording.Event // before the header is written; nil afterwards
	begun         bool
	partial       map[recording.Type][]byte // the beginning of a character
	time          time.Duration
	exit          []byte
	line          []byte
}

// maxPending is how many events may come before the first size of the terminal, which is in the header.
const maxPending = 64

func (x *exporter) add(e recording.Event) error {
	if x.begun {
		return x.write(e)
	}
	x.pending = append(x.pending, e)
	if e.Type == recording.Resize {
		x.width, x.height = e.Width, e.Height
	}
	if e.Type == recording.Resize || len(x.pending) == maxPending {
		return x.begin()
	}
	return nil
}

func (x *exporter) begin() error {
	x.begun = true
	line, err := x.info.Header(x.width, x.height)
	if err != nil {
		return err
	}
	if _, err := x.w.Write(append(line, '\n')); err != nil {
		return err
	}
	for _, e := range x.pending {
		if err := x.write(e); err != nil {
			return err
		}
	}
	x.pending = nil
	return nil
}

func (x *exporter) write(e recording.Event) error {
	x.time = e.Time
	switch e.Type {
	case recording.Output, recording.Stderr:
		return x.text(e.Type, recording.Output, e.Data)
	case recording.Input:
		return x.text(e.Type, recording.Input, e.Data)
	case recording.Resize:
		return x.event(recording.Resize, fmt.Appendf(nil, "%dx%d", e.Width, e.Height))
	case recording.Exit:
		const maxStatus = 64 << 10
		x.exit = append(x.exit, e.Data[:min(len(e.Data), maxStatus-len(x.exit))]...)
	case recording.Transferred:
		return x.event(recording.Marker, fmt.Appendf(nil, "bytes from the client: %d, to the client: %d", e.In, e.Out))
	}
	return nil
}

// text writes bytes of a stream. An incomplete character at the end waits for the rest.
func (x *exporter) text(stream, typ recording.Type, p []byte) error {
	p = append(x.partial[stream], p...)
	tail := utf8tail.Len(p)
	x.partial[stream] = bytes.Clone(p[len(p)-tail:])
	p = bytes.ToValidUTF8(p[:len(p)-tail], []byte("\uFFFD"))
	if !x.info.TTY && typ == recording.Output {
		p = bytes.ReplaceAll(bytes.ReplaceAll(p, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
	}
	if len(p) == 0 {
		return nil
	}
	return x.event(typ, p)
}

func (x *exporter) event(typ recording.Type, data []byte) error {
	x.line = recording.AppendEvent(x.line[:0], x.time, typ, data)
	_, err := x.w.Write(x.line)
	return err
}

func (x *exporter) close() error {
	if !x.begun {
		if err := x.begin(); err != nil {
			return err
		}
	}
	for _, stream := range []recording.Type{recording.Output, recording.Stderr, recording.Input} {
		if len(x.partial[stream]) > 0 {
			typ := recording.Output
			if stream == recording.Input {
				typ = recording.Input
			}
			if err := x.event(typ, []byte("\uFFFD")); err != nil {
				return err
			}
		}
	}
	if len(x.exit) > 0 {
		if err := x.event(recording.Marker, []byte(ExitText(x.exit))); err != nil {
			return err
		}
	}
	return x.w.Flush()
}

// ExitText returns the result of a metav1.Status in JSON in one line.
func ExitText(status []byte) string {
	var s struct{ Status, Message string }
	if err := json.Unmarshal(status, &s); err != nil || s.Status == "" {
		return fmt.Sprintf("exit: %.200q", status)
	}
	if s.Message == "" {
		return "exit: " + s.Status
	}
	return fmt.Sprintf("exit: %s: %.200s", s.Status, bytes.ToValidUTF8([]byte(s.Message), []byte("\uFFFD")))
}
