package fleet

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
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
)

// member is a target that takes part with all that it has.
func member(name string, id uint64) members.Target {
	return members.Target{Entry: members.Entry{Cluster: &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, ID: id}, Scope: registry.Scope{All: true}}
}

// TestHostileEvents holds: what a member calls an event is passed on as one of Kubernetes' types, or not at all.
func TestHostileEvents(t *testing.T) {
	for _, typ := range []string{"", failed, synced, "ERRORS", "added", `ADDED\",\"object\":{}}\n{\"type\":\"BOOKMARK`} {
		w := &watcher{q: &ask{}, events: make(chan event, 1)}
		f := &follower{Target: member("a", 1), w: w}
		body := `{"type":"` + typ + `","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}}`
		err := f.read(t.Context(), strings.NewReader(body), func() {})
		var e *members.Failure
		if !errors.As(err, &e) || len(w.events) > 0 || f.version != "" {
			t.Errorf("%q: %v, %d events", typ, err, len(w.events))
		}
	}
}

// TestDifferenceCutShort holds: a difference that the end of the watch cuts short is not taken for whole.
func TestDifferenceCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, lists := range map[string][2]map[string]object{
		"gone":    {{"a/a": {}}, {}},
		"came":    {{}, {"a/a": {}}},
		"changed": {{"a/a": {}}, {"a/a": {version: 1}}},
	} {
		f := &follower{Target: member("a", 1), w: &watcher{q: &ask{}, events: make(chan event)}}
		if _, err := f.difference(ctx, listOf(t, lists[0], false), listOf(t, lists[1], false)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGuardedWatch holds: a panic over a member, in what follows it or in what writes its events, ends that watch and tells the client why.
func TestGuardedWatch(t *testing.T) {
	begin := func() (*watcher, *ask) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		f := New(Config{Log: slog.New(slog.DiscardHandler), Deadline: time.Minute}) // no members: the first use panics
		q := &ask{f: f, r: r, m: f.m.Client(members.Caller{Request: r})}
		return &watcher{q: q, events: make(chan event), version: cursor.Version{}, followed: map[uint64]*follower{}, shown: map[uint64]bool{}, pending: map[uint64]bool{}, objects: kinds{}, lists: kinds{}}, q
	}
	const want = `cluster "a" gave an answer that the gateway cannot handle`
	w, q := begin()
	if err := w.run(httptest.NewRecorder(), q.r, []members.Target{member("a", 1)}, 0); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("at the beginning: %v", err)
	}
	for name, start := range map[string]func(w *watcher){
		"a follower": func(w *watcher) { w.follow(t.Context(), member("a", 1), time.Nanosecond) },
		"a writer": func(w *watcher) {
			f := &follower{Target: member("a", 1), w: w} // it has no form for objects
			w.followed[1] = f
			go f.send(t.Context(), event{from: f, kind: "ADDED", version: "7", typ: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}})
		},
	} {
		w, _ := begin()
		start(w)
		var out bytes.Buffer
		err := w.deliver(t.Context(), &out, func() error { return nil }, 0)
		var e struct {
			Type   string
			Object metav1.Status
		}
		if err != nil || json.Unmarshal(out.Bytes(), &e) != nil || e.Type != "ERROR" || !strings.Contains(e.Object.Message, want) || e.Object.Code != http.StatusBadGateway {
			t.Errorf("%s: %s, %v", name, out.String(), err)
		}
	}
}

// TestLongestToken holds: with the longest continue token that a member may send, that of the fleet fits into a request line of 16 KB.
func TestLongestToken(t *testing.T) {
	token := cursor.Token{Version: cursor.Version{}, Next: 1_000_000, Continue: strings.Repeat("x", merge.MaxContinue-2)}
	for i := range uint64(50) {
		token.Version[token.Next+i] = "18446744073709551615"
	}
	if n := len(token.String()); n > 14<<10 {
		t.Errorf("%d bytes", n)
	}
}

// TestColumnsOfMost holds: the columns that most clusters have stand first, and of as many those of the one that is registered longest, whichever
// list comes first.
func TestColumnsOfMost(t *testing.T) {
	table := func(id uint64, names ...string) *part {
		one := &part{Answer: &members.Answer{Target: member("m", id)}, Source: &merge.Source{}}
		for _, n := range names {
			one.Columns = append(one.Columns, merge.Column{Name: n, Text: []byte(`{}`)})
		}
		return one
	}
	for want, parts := range map[string][]*part{
		"Name  Phase junk Age": {table(1, "junk"), table(3, "Name", "Age"), table(2, "Name", "Phase"), table(4, "Name", "Age")},
		"Name  Age Ready":      {table(7, "Age"), table(2, "Name", "Ready")},
	} {
		var got []string
		for _, c := range merge.NewLayout(columnsOf(parts)...).Columns {
			got = append(got, c.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestMostKinds holds: of what kind objects are is as most members say, and of as many those that are registered longest; what their objects are goes
// before what their lists say.
func TestMostKinds(t *testing.T) {
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
		if got := most(tt.objects, tt.lists); got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
