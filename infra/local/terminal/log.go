// Package terminal writes the log of the local program for a person who reads it beside the program's instructions.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// maxHeld bounds the lines before Release. A start logs a few.
const maxHeld = 1 << 20

// Log converts lines of JSON, as log/slog writes them, to short text. It passes the printable text of other lines. It
// keeps all lines until Release, so that they do not interrupt instructions. It is safe for concurrent use.
type Log struct {
	mu       sync.Mutex
	out      io.Writer
	released bool
	text     bytes.Buffer // lines that are not written yet
	rest     []byte       // the beginning of an incomplete line
}

// NewLog returns a Log that writes to out.
func NewLog(out io.Writer) *Log { return &Log{out: out} }

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			break
		}
		l.text.WriteString(visible(format(l.rest[:i])))
		l.text.WriteByte('\n')
		l.rest = l.rest[i+1:]
	}
	if len(l.rest) > maxHeld { // a line without an end
		l.text.WriteString(visible(string(l.rest)))
		l.rest = nil
	}
	if !l.released && l.text.Len() < maxHeld {
		return len(p), nil
	}
	return len(p), l.flush()
}

// Release writes the lines so far. Later lines are written at once. Further calls have no effect.
func (l *Log) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
	_ = l.flush() // a terminal that is gone reads no error either
}

func (l *Log) flush() error {
	_, err := l.text.WriteTo(l.out)
	return err
}

// format returns "15:04:05 LEVEL message key=value…" for a line of slog.JSONHandler, without empty values. It returns
// any other line unchanged.
func format(line []byte) string {
	dec := json.NewDecoder(bytes.NewReader(line))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return string(line)
	}
	var at, level, message string
	var attributes strings.Builder
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return string(line)
		}
		switch text := plain(value); key {
		case "time":
			at = clock(text)
		case "level":
			level = text
		case "msg":
			message = text
		case "duration":
			if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
				text = time.Duration(ns).Round(time.Microsecond).String()
			}
			fmt.Fprintf(&attributes, " %s=%s", key, text)
		default:
			if text != `""` {
				fmt.Fprintf(&attributes, " %s=%s", key, text)
			}
		}
	}
	if at == "" || message == "" {
		return string(line)
	}
	return fmt.Sprintf("%s %-5s %s%s", at, level, message, attributes.String())
}

// plain returns a string without its quotes, unless it needs them.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil || text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r == '"' || r == 0x7f
	}) {
		return string(value)
	}
	return text
}

// visible replaces characters that a terminal could obey, such as U+009B. Callers and members choose parts of a line.
func visible(line string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, line)
}

func clock(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return ""
	}
	return t.Format(time.TimeOnly)
}
