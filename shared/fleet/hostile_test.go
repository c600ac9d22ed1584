package fleet

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
)

// member is a target that takes part with all that it has.
func member(name string, id uint64) target {
	return target{entry{&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, id}, registry.Scope{All: true}}
}

// TestHostileEvents holds: what a member calls an event is passed on as one of Kubernetes' types, or not at all.
func TestHostileEvents(t *testing.T) {
	for _, typ := range []string{"", failed, synced, "ERRORS", "added", `ADDED\",\"object\":{}}\n{\"type\":\"BOOKMARK`} {
		w := &watcher{q: &ask{}, events: make(chan event, 1)}
		f := &follower{target: member("a", 1), w: w}
		body := `{"type":"` + typ + `","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}}`
		err := f.read(t.Context(), strings.NewReader(body), func() {})
		var e *failure
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
		f := &follower{target: member("a", 1), w: &watcher{q: &ask{}, events: make(chan event)}}
		if _, err := f.difference(ctx, listOf(t, lists[0], false), listOf(t, lists[1], false)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGuard holds: what a goroutine did not foresee of a member's answer is that member's failure.
func TestGuard(t *testing.T) {
	q := &ask{f: &Fleet{cfg: Config{Log: slog.New(slog.DiscardHandler)}}}
	answers := q.each([]target{member("a", 1), member("b", 2)}, func(_ int, tt target) *answer {
		if tt.Name == "b" {
			panic("never seen")
		}
		return &answer{target: tt}
	})
	good, bad, err := split(answers)
	if err != nil || len(good) != 1 || len(bad) != 1 || bad[0].cluster != "b" || strings.Contains(bad[0].message, "never seen") {
		t.Errorf("%v, %v, %v", good, bad, err)
	}
}
