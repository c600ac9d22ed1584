package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/limits"
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

// TestSlowDiskDelaysCallsForASecond: with a full queue, a call waits for a place, and no longer than a second.
func TestSlowDiskDelaysCallsForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{gate: make(chan struct{})}
		l := New(Config{To: f, Queue: 3, Log: quiet})
		began := time.Now()
		for range 3 {
			record(l, "/")
		}
		if time.Since(began) != 0 {
			t.Error("a request waited")
		}
		record(l, "/")
		if waited := time.Since(began); waited != patience || l.Stats().Lost != 1 {
			t.Errorf("a request waited for %s, and %d events are lost", waited, l.Stats().Lost)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closed := make(chan error)
		go func() { closed <- l.Close(ctx) }()
		synctest.Wait()
		close(f.gate)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if n := f.written(t); n != 3 {
			t.Errorf("%d events are written", n)
		}
		record(l, "/")
		if l.Stats().Lost != 2 {
			t.Errorf("%d events are lost, one of them after Close", l.Stats().Lost)
		}
	})
}

// TestCloseIsBounded: a disk that hangs does not keep a program from ending.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{gate: make(chan struct{})}
		l := New(Config{To: f, Queue: 2, Log: quiet})
		record(l, "/")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || l.Stats().Lost != 1 {
			t.Errorf("got %v, and %d events are lost", err, l.Stats().Lost)
		}
		close(f.gate)
	})
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

// A function must refuse requests from the first one until an event is delivered. Otherwise each new environment would
// serve a request without an event.
func TestFailClosedWithoutQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, healthy := &faulty{err: errors.New("disk full")}, &faulty{}
		l := New(Config{To: healthy, Sinks: []Sink{Lines(f)}, FailClosed: true, Log: quiet})
		wantRefused(t, call(t, l))
		wantRefused(t, call(t, l))
		f.fail(nil)
		wantRefused(t, call(t, l)) // it is too early to try again
		time.Sleep(lastDirectPause)
		for range 2 {
			if err := call(t, l); err != nil {
				t.Error(err)
			}
		}
		for name, sink := range map[string]*faulty{"failed": f, "healthy": healthy} {
			var stages []any
			for _, e := range events(t, sink.got.Bytes()) {
				stages = append(stages, e["stage"])
			}
			if got := fmt.Sprint(stages); got != "[RequestReceived ResponseComplete ResponseComplete]" {
				t.Errorf("%s: the stages are %s", name, got)
			}
		}
		f.fail(errors.New("disk full"))
		if err := call(t, l); err != nil {
			t.Error(err)
		}
		wantRefused(t, call(t, l))
		f.fail(nil)
		time.Sleep(lastDirectPause)
		if err := call(t, l); err != nil || f.written(t) != 5 || l.Stats().Lost != 0 {
			t.Errorf("%v, %d events are written, %+v", err, f.written(t), l.Stats())
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A webhook with a wrong URL may reject every event. A function that fails closed must not serve requests without
// events then. The rejected event of one client must not prevent the proof by the next request.
func TestRejectedEventProvesNothing(t *testing.T) {
	p := &picky{rejects: "RequestReceived"}
	l := New(Config{Sinks: []Sink{p}, FailClosed: true, Log: quiet})
	for n := range uint64(2) {
		wantRefused(t, call(t, l))
		if s := l.Stats(); s.Lost != n+1 || s.Refused != n+1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	}
	p.rejects = "no event has this text"
	for range 2 {
		if err := call(t, l); err != nil {
			t.Error(err)
		}
	}
	if s := l.Stats(); s.Lost != 2 || len(p.got) != 3 || !bytes.Contains(p.got[0], []byte("RequestReceived")) {
		t.Errorf("%d events are delivered, %+v", len(p.got), s)
	}
}

// The first request of a process can be anyone's. Its URL must not fill the log.
func TestProofIsShort(t *testing.T) {
	f := &faulty{}
	l := New(Config{To: f, FailClosed: true, Log: quiet})
	q := l.Begin(request("/" + strings.Repeat("a", maxURI)))
	if err := q.Admit(t.Context()); err != nil || f.written(t) != 1 || f.got.Len() > 4*maxUnidentified {
		t.Errorf("%v, %d events of %d bytes are written", err, f.written(t), f.got.Len())
	}
}

// hanging is a Sink that accepts events after a time.
type hanging time.Duration

func (h hanging) Deliver(ctx context.Context, events [][]byte) (int, error) {
	select {
	case <-time.After(time.Duration(h)):
		return len(events), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Lambda ends a process at the deadline of its invocation. An event that is not delivered until then must be counted
// before.
func TestDeliveryWithoutQueueIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		sinks []Sink
		left  time.Duration // until the end of the function; 0 for no end
		want  time.Duration // duration of the delivery
		lost  uint64
	}{
		"in time":          {[]Sink{hanging(time.Second)}, 2 * time.Second, time.Second, 0},
		"too late":         {[]Sink{hanging(time.Second)}, time.Second / 2, time.Second / 2, 1},
		"nothing is left":  {[]Sink{hanging(time.Second)}, -time.Second, 0, 1},
		"no end":           {[]Sink{hanging(time.Minute)}, 0, directTimeout, 1},
		"much is left":     {[]Sink{hanging(time.Minute)}, time.Minute, directTimeout, 1},
		"sinks at a time":  {[]Sink{hanging(3 * time.Second), hanging(3 * time.Second)}, 4 * time.Second, 3 * time.Second, 0},
		"one sink of many": {[]Sink{hanging(time.Second), hanging(time.Minute)}, 4 * time.Second, 4 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Config{Sinks: tt.sinks, Log: quiet})
				r := request("/")
				if tt.left != 0 {
					r = r.WithContext(WithDeadline(r.Context(), time.Now().Add(tt.left)))
				}
				q := l.Begin(r)
				began := time.Now()
				q.User(User{Username: "ann"}, "x509")
				q.Completed(200, nil)
				if took := time.Since(began); took != tt.want || l.Stats().Lost != tt.lost {
					t.Errorf("the delivery took %s, want %s, and %d events are lost", took, tt.want, l.Stats().Lost)
				}
			})
		})
	}
}

// An operator must be able to end an outage that FailClosed causes, in bounded memory.
func TestOverrideLetsCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed, asked := false, 0
		var log waittest.Buffer
		l := New(Config{
			To: &faulty{err: errors.New("disk full")}, Queue: 2, FailClosed: true, Log: slog.New(slog.NewJSONHandler(&log, nil)),
			Override: func(context.Context) (bool, error) { asked++; return allowed, nil },
		})
		for range 2 {
			if err := call(t, l); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			wantRefused(t, call(t, l))
		}
		allowed = true
		time.Sleep(overrideFor)
		for range 100 {
			if err := call(t, l); err != nil {
				t.Fatal(err)
			}
		}
		if s := l.Stats(); asked != 2 || s.Refused != 100 || s.Overridden != 100 || s.Lost != 100 || s.Waiting != 2 {
			t.Errorf("the override was read %d times, %+v", asked, s)
		}
		if !strings.Contains(log.String(), "an operator allowed it") {
			t.Errorf("the log does not report it:\n%s", log.String())
		}
		allowed = false
		time.Sleep(overrideFor)
		wantRefused(t, call(t, l))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err == nil {
			t.Error("two events wait, and Close has no error")
		}
	})
}

// TestOneCallerLeavesSpaceForOthers: with FailClosed, one caller with few rights must not stop everyone's requests by
// events that wait.
func TestOneCallerLeavesSpaceForOthers(t *testing.T) {
	for name, uri := range map[string]string{"many events": "/", "large events": "/" + strings.Repeat("x", maxURI)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{err: errors.New("disk full")}
				l := New(Config{To: f, Queue: 4096, FailClosed: true, Log: quiet})
				by := func(user string) error {
					q := l.Begin(request(uri))
					if err := q.Admit(t.Context()); err != nil {
						return err
					}
					q.User(User{Username: user}, "x509")
					err := q.AdmitCaller(t.Context())
					q.Completed(200, nil)
					return err
				}
				accepted := 0
				for range 4096 {
					if by("greedy") == nil {
						accepted++
					}
				}
				wantRefused(t, by("greedy"))
				if s := l.Stats(); accepted == 0 || accepted > 1024 || s.Waiting != accepted || s.Lost != 0 {
					t.Errorf("%d requests of one caller are accepted, %+v", accepted, s)
				}
				for n := range 100 {
					if err := by(fmt.Sprintf("user-%d", n)); err != nil {
						t.Fatalf("another caller: %v", err)
					}
				}
				f.fail(nil)
				time.Sleep(lastPause)
				synctest.Wait()
				if err := by("greedy"); err != nil {
					t.Errorf("after the outage: %v", err)
				}
				if err := l.Close(t.Context()); err != nil || f.written(t) != accepted+101 {
					t.Errorf("%v, %d events are written", err, f.written(t))
				}
			})
		})
	}
}

// TestUnidentifiedEventsSurviveAnOutage: with FailClosed, an attacker without a credential must not vanish from the log
// during an outage, nor let the memory grow.
func TestUnidentifiedEventsSurviveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{err: errors.New("disk full")}
		l := New(Config{To: f, Queue: 3, FailClosed: true, Log: quiet})
		for range 100 { // more than the rate allows
			l.Begin(request("/")).Completed(401, noCredential)
		}
		for range 10 {
			time.Sleep(limits.CombineEvery)
			l.Begin(request("/healthz")).Completed(200, nil) // is never refused
		}
		if s := l.Stats(); s.Waiting != 3 || s.Lost != 0 {
			t.Errorf("during the outage: %+v", s)
		}
		f.fail(nil)
		time.Sleep(lastPause + limits.CombineEvery)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if written, stand := sum(t, f.got.Bytes()); written != 4 || stand != 110 || l.Stats().Lost != 0 {
			t.Errorf("%d events stand for %d, %+v", written, stand, l.Stats())
		}
	})
}

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

// TestUsersAreCut: a user with thousands of groups must not make an event that no webhook accepts.
func TestUsersAreCut(t *testing.T) {
	many := make([]string, 5000)
	for n := range many {
		many[n] = fmt.Sprintf("group-%d", n)
	}
	huge := strings.Repeat("x", maxUser)
	for name, tt := range map[string]struct {
		user User
		want string // in the event
	}{
		"small":       {User{Username: "ann", Groups: many[:100]}, `"group-99"]`},
		"many groups": {User{Username: "ann", Groups: many}, `","…"]`},
		"huge texts":  {User{Username: huge, UID: huge, Groups: []string{huge}}, `x…","uid":"x`},
		"extra":       {User{Username: "ann", Extra: map[string][]string{huge: many, "a": {huge, "b"}}}, `"a":["xx`},
		"many extras": {User{Username: "ann", Extra: map[string][]string{"a": many, "b": many}}, `"…":["…"]`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			q := New(Config{To: &b, Log: quiet}).Begin(request("/"))
			q.User(tt.user, "x509")
			q.As(tt.user)
			q.Completed(200, nil)
			if b.Len() > 3*maxUser || !strings.Contains(b.String(), tt.want) {
				t.Errorf("%d bytes: %.300s", b.Len(), &b)
			}
		})
	}
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
