package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

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
