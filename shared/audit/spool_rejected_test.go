package audit

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

type picky struct {
	rejects string
	got     [][]byte
}

func (p *picky) Deliver(_ context.Context, events [][]byte) (int, error) {
	if slices.ContainsFunc(events, func(e []byte) bool { return bytes.Contains(e, []byte(p.rejects)) }) {
		return 0, fmt.Errorf("%w: too odd", ErrRejected)
	}
	p.got = append(p.got, events...)
	return len(events), nil
}

// TestRejectedEventIsLostAlone: one event that a webhook never accepts does not keep the others from it.
func TestRejectedEventIsLostAlone(t *testing.T) {
	p := &picky{rejects: "/17"}
	l := &Log{cfg: Config{Log: quiet, Queue: 1}, complaints: map[complaint]*limited{complainLost: {}}}
	s := &spool{log: l, sink: p}
	var batch []entry
	var lines [][]byte
	for n := range 100 {
		line := fmt.Appendf(nil, "/%d\n", n)
		batch, lines = append(batch, entry{line: line, count: 1}), append(lines, line)
	}
	n, err := s.deliver(t.Context(), batch)
	want := slices.Delete(slices.Clone(lines), 17, 18)
	if n != 100 || err != nil || l.Stats().Lost != 1 || !slices.EqualFunc(p.got, want, bytes.Equal) {
		t.Errorf("%d events need no other delivery, %v, %d lost, got %q", n, err, l.Stats().Lost, p.got)
	}
}

// partial accepts two events at a time, and rejects those with an old time among them.
type partial struct{ got [][]byte }

func (p *partial) Deliver(_ context.Context, events [][]byte) (int, error) {
	n := min(2, len(events))
	rejected := &RejectedError{Why: "too old"}
	for i, e := range events[:n] {
		if bytes.Contains(e, []byte("old")) {
			rejected.Events = append(rejected.Events, i)
		} else {
			p.got = append(p.got, e)
		}
	}
	switch {
	case len(rejected.Events) > 0:
		return n, fmt.Errorf("deliver: %w", rejected)
	case n < len(events):
		return n, fmt.Errorf("%w: the third", ErrRejected)
	}
	return n, nil
}

// TestPartlyRejectedBatchIsNotRepeated: events that a sink rejected among others are counted as lost, and the others
// neither lost nor delivered twice.
func TestPartlyRejectedBatchIsNotRepeated(t *testing.T) {
	p := &partial{}
	l := &Log{cfg: Config{Log: quiet, Queue: 1}, complaints: map[complaint]*limited{complainLost: {}}}
	s := &spool{log: l, sink: p}
	var batch []entry
	for _, text := range []string{"a", "b", "c", "old", "d", "old", "old", "e", "f"} {
		batch = append(batch, entry{line: []byte(text), count: 2})
	}
	n, err := s.deliver(t.Context(), batch)
	got := string(bytes.Join(p.got, nil))
	if n != len(batch) || err != nil || got != "abcdef" || l.Stats().Lost != 6 {
		t.Errorf("%d of %d events are done, %v, got %q, %d lost", n, len(batch), err, got, l.Stats().Lost)
	}
}

// TestRejectedEventIsSentShort: a caller must not be able to prevent its event by texts that a webhook rejects.
func TestRejectedEventIsSentShort(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, tt := range map[string]struct{ rejects, text string }{
		"size":       {strings.Repeat("x", 300), long},
		"characters": {`\u0000`, "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &picky{rejects: tt.rejects}
			l := New(Config{Sinks: []Sink{p}, Log: quiet})
			r := request("/")
			r.RequestURI = "/" + tt.text
			r.Header.Set("User-Agent", tt.text)
			q := l.Begin(r)
			q.User(User{Username: "ann", Groups: slices.Repeat([]string{"dev", tt.text}, 1000)}, "x509")
			q.As(User{Username: tt.text, Extra: map[string][]string{tt.text: {tt.text}}})
			q.Decision(true, tt.text)
			q.Completed(200, nil)
			if len(p.got) != 1 || l.Stats().Lost != 0 {
				t.Fatalf("%d events, %+v", len(p.got), l.Stats())
			}
			e := events(t, p.got[0])[0]
			if user := e["user"].(map[string]any); user["username"] != "ann" || e["auditID"] != q.ID() ||
				e["annotations"].(map[string]any)[ShortenedAnnotation] != "true" || len(p.got[0]) > 4<<10 {
				t.Errorf("%d bytes: %s", len(p.got[0]), p.got[0])
			}
		})
	}
}
