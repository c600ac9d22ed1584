package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestLogIsReadable: a person must find the message of a line, and see no escape sequences of a caller.
func TestLogIsReadable(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(&out)
	l.Release()
	log := slog.New(slog.NewJSONHandler(l, nil))
	log.Info("a member's health has changed", "cluster", "prod", "ready", true)
	log.Warn("it failed", "error", errors.New("no \"route\"\x1b[2J\nto host"), "duration", 1234567*time.Nanosecond,
		"after", 3, "empty", "", "path", "/\u009b2J\u202e")
	_, _ = fmt.Fprint(l, "panic: boom\n\n{\"not\": \"a log line\"}\n{broken\n[1]\n\u009b2J\n")
	want := []string{
		`\d\d:\d\d:\d\d INFO  a member's health has changed cluster=prod ready=true`,
		`\d\d:\d\d:\d\d WARN  it failed error="no \\"route\\"\\u001b\[2J\\nto host" duration=1.235ms after=3 ` +
			`path=/\x{fffd}2J\x{fffd}`,
		`panic: boom`, ``, `{"not": "a log line"}`, `{broken`, `\[1]`, `\x{fffd}2J`, ``,
	}
	if ok, err := regexp.MatchString("^"+strings.Join(want, "\n")+"$", out.String()); err != nil || !ok {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestLogWaitsForInstructions: lines must not stand between instructions, and none may be lost.
func TestLogWaitsForInstructions(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(&out)
	for _, part := range []string{"one\ntw", "o\n", "thr"} {
		_, _ = l.Write([]byte(part))
	}
	if out.Len() > 0 {
		t.Errorf("before the release: %q", out.String())
	}
	l.Release()
	if out.String() != "one\ntwo\n" {
		t.Errorf("after the release: %q", out.String())
	}
	_, _ = l.Write([]byte("ee\n"))
	if l.Release(); out.String() != "one\ntwo\nthree\n" {
		t.Errorf("at the end: %q", out.String())
	}
	long := strings.Repeat("x", 2*maxHeld)
	for range 2 { // a line without an end, and one before the release
		l := NewLog(&out)
		out.Reset()
		if _, _ = l.Write([]byte(long)); out.String() != long {
			t.Errorf("%d of %d bytes are written", out.Len(), len(long))
		}
		long += "\n"
	}
}
