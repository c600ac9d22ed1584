// Package crilog writes and reads container logs in the CRI format, which kubelets and log collectors share. Each line
// of output is one line of the log:
//
//	2006-01-02T15:04:05.000000000Z stdout F the line
//
// F means full. P (partial) means that the line continues in the next entry, because it is long or because the output
// ended without a newline. Output of any bytes is read back unchanged.
//
// The same process writes and follows a File, so that no file watch is needed.
package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Streams of a container.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

const (
	// timeFormat is RFC 3339 with all nine digits, like the kubelet's.
	timeFormat = "2006-01-02T15:04:05.000000000Z07:00"
	tagFull    = "F"
	tagPartial = "P"
	// maxContent is the maximum length of an entry's content in bytes, as in containerd.
	maxContent = 16 << 10
)

var errMalformed = errors.New("not a CRI log entry")

// entry is one line of a log file.
type entry struct {
	time    time.Time
	stream  string
	partial bool
	content []byte // without the newline of a full line
}

// appendTo appends the entry in the CRI format.
func (e entry) appendTo(b []byte) []byte {
	b = e.time.UTC().AppendFormat(b, timeFormat)
	b = append(b, ' ')
	b = append(b, e.stream...)
	b = append(b, ' ')
	if e.partial {
		b = append(b, tagPartial...)
	} else {
		b = append(b, tagFull...)
	}
	b = append(b, ' ')
	b = append(b, e.content...)
	return append(b, '\n')
}

// parse reads one entry with its newline. The content refers to line.
func parse(line []byte) (entry, error) {
	line, ok := bytes.CutSuffix(line, []byte{'\n'})
	fields := bytes.SplitN(line, []byte{' '}, 4)
	if !ok || len(fields) != 4 {
		return entry{}, errMalformed
	}
	t, err := time.Parse(timeFormat, string(fields[0]))
	if err != nil {
		return entry{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	e := entry{time: t, stream: string(fields[1]), content: fields[3]}
	if e.stream != Stdout && e.stream != Stderr {
		return entry{}, fmt.Errorf("%w: stream %q", errMalformed, e.stream)
	}
	switch string(fields[2]) {
	case tagFull:
	case tagPartial:
		e.partial = true
	default:
		return entry{}, fmt.Errorf("%w: tag %q", errMalformed, fields[2])
	}
	return e, nil
}

// output returns the output that the entry represents.
func (e entry) output() []byte {
	if e.partial {
		return e.content
	}
	return append(e.content[:len(e.content):len(e.content)], '\n')
}

// splitter converts output to entries as it arrives.
type splitter struct {
	stream string
	line   []byte // an incomplete line, at most maxContent
}

// appendTo appends the entries that p completes.
func (s *splitter) appendTo(b []byte, now time.Time, p []byte) []byte {
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if room := maxContent - len(s.line); len(line) > room {
			line, rest, ended = p[:room], p[room:], false
		}
		s.line = append(s.line, line...)
		p = rest
		if ended || len(p) > 0 { // more follows, so the line is full or too long
			b = s.flush(b, now, !ended)
		}
	}
	return b
}

// flush appends an entry with the incomplete line.
func (s *splitter) flush(b []byte, now time.Time, partial bool) []byte {
	b = entry{time: now, stream: s.stream, partial: partial, content: s.line}.appendTo(b)
	s.line = s.line[:0]
	return b
}
