package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

func member(name string, id uint64) members.Target {
	return members.Target{Entry: members.Entry{
		Cluster: &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, ID: id},
		Scope: registry.Scope{All: true}}
}

func newFollower(n int) *follower {
	pool := members.NewPool(members.Config{Log: slog.New(slog.DiscardHandler)})
	s := &session{client: pool.Client(members.Caller{}), req: &request.Request{}, events: make(chan event, n)}
	return &follower{Target: member("a", 1), session: s}
}

// TestHostileEvents fails if a member could send an event type that clients do not know, or an internal one.
func TestHostileEvents(t *testing.T) {
	for _, typ := range []string{"", failed, synced, "ERRORS", "added", `ADDED\",\"object\":{}}\n{\"type\":\"BOOKMARK`} {
		f := newFollower(1)
		body := `{"type":"` + typ + `","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a",` +
			`"resourceVersion":"7"}}}`
		err := f.read(t.Context(), strings.NewReader(body), func() {})
		var e *members.Failure
		if !errors.As(err, &e) || len(f.events) > 0 || f.version != "" {
			t.Errorf("%q: %v, %d events", typ, err, len(f.events))
		}
	}
}

// TestDifferenceCutShort fails if a difference that ended with the watch counted as complete.
func TestDifferenceCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, lists := range map[string][2]map[string]object{
		"gone":    {{"a/a": {}}, {}},
		"came":    {{}, {"a/a": {}}},
		"changed": {{"a/a": {}}, {"a/a": {version: 1}}},
	} {
		f := newFollower(0)
		if _, err := f.difference(ctx, listOf(t, lists[0], false), listOf(t, lists[1], false)); !errors.Is(err,
			context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDifferenceOfOtherNamespaces fails if a list that breaks off ends a watch that sent the client nothing of it.
func TestDifferenceOfOtherNamespaces(t *testing.T) {
	f := newFollower(1)
	f.Scope = registry.Scope{Namespaces: []string{"a", "b"}}
	then := listOf(t, map[string]object{"other/x": {}}, false)
	hasSent, err := f.difference(t.Context(), then, listOf(t, map[string]object{}, false))
	if hasSent || err != nil || len(f.events) > 0 {
		t.Errorf("has sent: %t; %d events; %v", hasSent, len(f.events), err)
	}
}

// TestPanicEndsWatchWithReason fails if a panic could end the process, or left a client without the reason.
func TestPanicEndsWatchWithReason(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	begin := func() *watcher {
		// The pool has no members, so that the first use panics.
		pool := members.NewPool(members.Config{Log: slog.New(slog.DiscardHandler), Deadline: time.Minute})
		client := pool.Client(members.Caller{Request: r})
		return newWatcher(&session{client: client, req: &request.Request{}, events: make(chan event)}, nil)
	}
	const want = `cluster "a" sent a response that the gateway cannot handle`
	w := begin()
	w.targets = []members.Target{member("a", 1)}
	if err := w.ServeWatch(httptest.NewRecorder(), r); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("at the beginning: %v", err)
	}
	for name, start := range map[string]func(w *watcher){
		"a follower": func(w *watcher) { w.follow(t.Context(), member("a", 1), time.Nanosecond) },
		"a writer": func(w *watcher) {
			f := &follower{Target: member("a", 1), session: w.session}
			w.followed[1] = &followed{follower: f} // without an answer, so that it panics
			go f.send(t.Context(), event{from: f, typ: added, version: "7",
				kind: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}})
		},
	} {
		w := begin()
		start(w)
		var out bytes.Buffer
		err := w.deliver(t.Context(), &out, func() error { return nil })
		var e struct {
			Type   string
			Object metav1.Status
		}
		if err != nil || json.Unmarshal(out.Bytes(), &e) != nil || e.Type != "ERROR" ||
			!strings.Contains(e.Object.Message, want) || e.Object.Code != http.StatusBadGateway {
			t.Errorf("%s: %s, %v", name, out.String(), err)
		}
	}
}

// TestMajorityDecidesKind fails if one member could decide the kind of bookmarks.
func TestMajorityDecidesKind(t *testing.T) {
	pod, evil := metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, metav1.TypeMeta{Kind: "Evil", APIVersion: "v1"}
	for name, tt := range map[string]struct {
		objects, lists kinds
		want           metav1.TypeMeta
	}{
		"nothing":         {},
		"one":             {kinds{1: evil}, nil, evil},
		"most":            {kinds{1: evil, 2: pod, 3: pod}, nil, pod},
		"as many":         {kinds{2: evil, 1: pod}, nil, pod},
		"lists":           {nil, kinds{1: evil, 2: pod, 3: pod}, pod},
		"objects, before": {kinds{1: pod, 2: pod}, kinds{1: evil, 2: evil, 3: evil}, pod},
	} {
		if got := majority(tt.objects, tt.lists); got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
