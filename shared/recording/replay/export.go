package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/utf8tail"
)

// ExportOptions configure Export.
type ExportOptions struct {
	// Filter removes from the output what Filter removes. Without it, the output has every sequence of the recording,
	// which a terminal obeys when the file is played in it.
	Filter bool
}

// Export writes a recording as one file in asciicast v2, for any player. Standard error is part of the output. Bytes
// that are no UTF-8 become U+FFFD. The exit status and the counts of a port-forward are markers. Lines of a session
// without a terminal get carriage returns. Sizes of the terminal are at most 1000, and those below 1 are left out,
// because players fail at them. The file itself has no control characters but the ends of lines.
//
// After an error that wraps a recording.Fault of the kind Cut, the file has all events.
func Export(ctx context.Context, w io.Writer, r *recording.Reader, o ExportOptions) error {
	x := &exporter{
		w: bufio.NewWriter(w), info: r.Info(), width: recording.DefaultWidth, height: recording.DefaultHeight,
		partial: map[recording.Type][]byte{},
	}
	if o.Filter {
		x.filter = &Filter{W: &x.filtered}
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
	filter        *Filter      // nil for none
	filtered      bytes.Buffer // output of filter
}

// maxPending is how many events may come before the first size of the terminal, which is in the header.
const maxPending = 64

// maxSize is the greatest width or height of a terminal in an exported file.
const maxSize = 1000

func (x *exporter) add(e recording.Event) error {
	if e.Type == recording.Resize {
		if e.Width < 1 || e.Height < 1 {
			return nil
		}
		e.Width, e.Height = min(e.Width, maxSize), min(e.Height, maxSize)
	}
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
	if _, err := x.w.Write(append(escapeControls(line), '\n')); err != nil {
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
	if x.filter != nil && typ == recording.Output {
		x.filtered.Reset()
		_, _ = x.filter.Write(p) // a Buffer returns no error
		p = x.filtered.Bytes()
	}
	if len(p) == 0 {
		return nil
	}
	return x.event(typ, p)
}

func (x *exporter) event(typ recording.Type, data []byte) error {
	x.line = recording.AppendEvent(x.line[:0], x.time, typ, data)
	_, err := x.w.Write(escapeControls(x.line))
	return err
}

// controls are DEL and the controls of 8 bits (C1). JSON permits them in strings, and terminals obey some of them.
var controls = regexp.MustCompile(`[\x7f-\x{9f}]`)

// escapeControls returns a line of JSON in which a terminal obeys nothing but the end of the line.
func escapeControls(line []byte) []byte {
	const del, leadOfC1 = 0x7f, 0xc2
	if bytes.IndexByte(line, del) < 0 && bytes.IndexByte(line, leadOfC1) < 0 {
		return line // nearly all lines; the expression is slow
	}
	return controls.ReplaceAllFunc(line, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	})
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
