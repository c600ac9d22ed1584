package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

type faulty struct {
	mu   sync.Mutex
	err  error
	gate chan struct{}
	got  bytes.Buffer
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.gate != nil {
		<-f.gate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	return f.got.Write(p)
}

func (f *faulty) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faulty) written(t *testing.T) int {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(events(t, f.got.Bytes()))
}

func record(l *Log, uri string) {
	q := l.Begin(request(uri))
	q.User(User{Username: "ann"}, "x509")
	q.Completed(200, nil)
}

func call(t *testing.T, l *Log) error {
	t.Helper()
	q := l.Begin(request("/"))
	err := q.Admit(t.Context())
	q.User(User{Username: "ann"}, "x509")
	q.Completed(200, nil)
	return err
}

func wantRefused(t *testing.T, err error) {
	t.Helper()
	var refused *status.Error
	if !errors.As(err, &refused) || refused.Reason != status.AuditUnavailable || refused.Code() != 503 ||
		refused.RetryAfter <= 0 {
		t.Errorf("got %v, want a refusal with 503 and Retry-After", err)
	}
}

// An operator must learn of a full disk by a count and one line of the log, not by thousands.
func TestLostEventsAreCounted(t *testing.T) {
	var log bytes.Buffer
	l := New(Config{To: &faulty{err: errors.New("disk full")}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		record(l, "/")
	}
	if n := l.Stats().Lost; n != 3 || !strings.Contains(log.String(), "audit events are lost") ||
		!strings.Contains(log.String(), "disk full") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d events are lost, and the log has:\n%s", n, &log)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	record(l, "/")
	if n := l.Stats().Lost; n != 4 {
		t.Errorf("%d events are lost, one of them after Close", n)
	}
}

// Without a queue, an operator must learn that Close could not deliver stored events.
func TestCloseReportsUndeliveredEvents(t *testing.T) {
	f := &faulty{}
	l := New(Config{To: f, FailClosed: true, Log: quiet})
	if err := call(t, l); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("disk full")
	f.fail(broken)
	if err := call(t, l); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); !errors.Is(err, broken) || l.Stats().Lost == 0 {
		t.Errorf("got %v, and %d events are lost", err, l.Stats().Lost)
	}
}

func TestQueuedEventsSurviveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{err: errors.New("disk full")}
		l := New(Config{To: f, Queue: 10, Log: quiet})
		for n := range 10 {
			record(l, fmt.Sprintf("/%d", n))
		}
		time.Sleep(time.Minute)
		if s := l.Stats(); s.Waiting != 10 || s.Lost != 0 {
			t.Errorf("during the outage: %+v", s)
		}
		began := time.Now()
		record(l, "/one-too-many")
		if waited := time.Since(began); waited != 0 || l.Stats().Lost != 1 {
			t.Errorf("a call waited for %s for a sink that fails, and %d events are lost", waited, l.Stats().Lost)
		}
		f.fail(nil)
		time.Sleep(lastPause)
		synctest.Wait()
		for n, e := range events(t, f.got.Bytes()) {
			if e["requestURI"] != fmt.Sprintf("/%d", n) {
				t.Errorf("event %d is of %s", n, e["requestURI"])
			}
		}
		if n := f.written(t); n != 10 {
			t.Errorf("%d events are written", n)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Every accepted request must have its event in the end, and the log the alarm once.
func TestFailClosedLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log waittest.Buffer
		f := &faulty{err: errors.New("disk full")}
		l := New(Config{To: f, Queue: 3, FailClosed: true, Log: slog.New(slog.NewJSONHandler(&log, nil))})
		early := l.Begin(request("/")) // is in flight while the queue fills
		if err := early.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		early.User(User{Username: "ann"}, "x509")
		for range 3 {
			if err := call(t, l); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			wantRefused(t, call(t, l))
		}
		early.Completed(200, nil)
		if s := l.Stats(); s.Waiting != 4 || s.Refused != 5 || s.Lost != 0 {
			t.Errorf("while the disk is full: %+v", s)
		}
		alarm := fmt.Sprintf(`"level":"ERROR","msg":%q,"reason":"audit_unavailable"`, complainRefused)
		if n := strings.Count(log.String(), alarm); n != 1 {
			t.Errorf("%d alarms:\n%s", n, log.String())
		}
		f.fail(nil)
		time.Sleep(lastPause)
		synctest.Wait()
		if err := call(t, l); err != nil {
			t.Errorf("the disk has space again: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := f.written(t); n != 5 || l.Stats().Lost != 0 {
			t.Errorf("%d events are written, %d lost", n, l.Stats().Lost)
		}
	})
}

type torn struct {
	bytes.Buffer
	space int
}

func (w *torn) Write(p []byte) (int, error) {
	if w.space >= 0 && w.space < len(p) {
		n, _ := w.Buffer.Write(p[:w.space])
		w.space = -1
		return n, errors.New("disk full")
	}
	return w.Buffer.Write(p)
}

// TestTornLineEnds: an event that follows one that was written in part has a line of its own.
func TestTornLineEnds(t *testing.T) {
	w := &torn{space: 4}
	sink := Lines(w)
	lines := [][]byte{[]byte("first\n"), []byte("second\n")}
	if n, err := sink.Deliver(t.Context(), lines); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := sink.Deliver(t.Context(), lines); n != 2 || err != nil || w.String() != "firs\nfirst\nsecond\n" {
		t.Errorf("%d, %v, %q", n, err, w.String())
	}
}
