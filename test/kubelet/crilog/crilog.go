// Package crilog writes and reads container logs in the CRI format. Each line of output is one line of the log:
//
//	2006-01-02T15:04:05.000000000Z stdout F the line
//
// F means full. P (partial) means that the line continues in the next entry. Output of any bytes is read back
// unchanged. The same process writes and follows a File, so that no file watch is needed.
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
	timeFormat = "2006-01-02T15:04:05.000000000Z07:00"
	tagFull    = "F"
	tagPartial = "P"
	// maxContent is the maximum length of an entry's content in bytes, as in containerd.
	maxContent = 16 << 10
)

var errMalformed = errors.New("not a CRI log entry")

type entry struct {
	time    time.Time
	stream  string
	partial bool
	content []byte // without the newline of a full line
}

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

func (e entry) output() []byte {
	if e.partial {
		return e.content
	}
	return append(e.content[:len(e.content):len(e.content)], '\n')
}

type splitter struct {
	stream string
	line   []byte // an incomplete line, at most maxContent
}

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

func (s *splitter) flush(b []byte, now time.Time, partial bool) []byte {
	b = entry{time: now, stream: s.stream, partial: partial, content: s.line}.appendTo(b)
	s.line = s.line[:0]
	return b
}
