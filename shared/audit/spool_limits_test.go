package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/limits"
)

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
