package watch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
)

type writes chan string

func (c writes) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// watching starts a watch of one member with bookmarks. Events without a member are from that one.
func watching(t *testing.T, client writes, waiting []event, ends time.Duration) (f *follower, ended chan error) {
	t.Helper()
	f = newFollower(len(waiting))
	w := newWatcher(f.session, nil)
	w.allowsBookmarks, w.timeout = true, ends
	w.followed[1] = &followed{follower: f}
	for _, e := range waiting {
		if e.from == nil {
			e.from = f
		}
		w.events <- e
	}
	ended = make(chan error, 1)
	go func() { ended <- w.deliver(t.Context(), client, func() error { return nil }) }()
	return f, ended
}

// TestWatchSendsAtOnce fails if events that are ready went out one by one, or if a single event waited for another.
func TestWatchSendsAtOnce(t *testing.T) {
	client := make(writes)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mark := func(version string) event { return event{typ: bookmark, version: version} }
	f, ended := watching(t, client, []event{mark("1"), mark("2"), mark("3")}, 0)
	got := func() string {
		select {
		case text := <-client:
			return text
		case <-ctx.Done():
			t.Fatal("nothing was sent")
			return ""
		}
	}
	first := got()
	if strings.Count(first, "\n") != 3 {
		t.Errorf("%q", first)
	}
	before := 0
	for _, version := range []string{"1", "2", "3"} {
		at := strings.Index(first, cursor.Version{1: version}.String())
		if at < before {
			t.Errorf("%s is not after what was before it: %q", version, first)
		}
		before = at
	}
	e := mark("4")
	e.from = f
	f.send(ctx, e)
	if text := got(); strings.Count(text, "\n") != 1 || !strings.Contains(text, cursor.Version{1: "4"}.String()) {
		t.Errorf("%q", text)
	}
	f.send(ctx, event{from: f, typ: failed, err: errors.New("it went")})
	if text := got(); !strings.HasSuffix(text, `"type":"ERROR"}`+"\n") {
		t.Errorf("%q", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}

	_, ended = watching(t, client, []event{mark("1"), {typ: failed, err: errors.New("it went")}, mark("2")}, 0)
	if text := got(); strings.Count(text, "\n") != 2 || !strings.Contains(text, `"type":"BOOKMARK"}`+"\n") ||
		!strings.HasSuffix(text, `"type":"ERROR"}`+"\n") {
		t.Errorf("%q", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWatchEndsInAFlood fails if a flood of events could keep a watch open after its timeout.
func TestWatchEndsInAFlood(t *testing.T) {
	for name, hidden := range map[string]bool{"shown": false, "not shown": true} {
		waiting := make([]event, 30_000)
		for i := range waiting {
			if waiting[i] = (event{typ: bookmark, version: "7"}); hidden && i > 0 {
				waiting[i].from = newFollower(0) // which is not followed any more
			}
		}
		client := make(writes)
		f, ended := watching(t, client, waiting, time.Nanosecond)
		for over := false; !over; {
			select {
			case <-client:
			case err := <-ended:
				if err != nil || len(f.events) == 0 {
					t.Errorf("%s: %d events wait, %v", name, len(f.events), err)
				}
				over = true
			}
		}
	}
}
