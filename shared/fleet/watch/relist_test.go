package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

type object struct{ uid, version int }

// listOf returns a list of objects by NAMESPACE/NAME, in the order of keys, as a Table or not.
func listOf(t *testing.T, objects map[string]object, table bool, keys ...string) *listing {
	t.Helper()
	if keys == nil {
		keys = slices.Sorted(maps.Keys(objects))
	}
	var items []string
	for _, key := range keys {
		namespace, name, _ := strings.Cut(key, "/")
		item := fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":"%d","resourceVersion":"%d"}}`, namespace, name,
			objects[key].uid, objects[key].version)
		if table {
			item = `{"cells":[],"object":` + item + `}`
		}
		items = append(items, item)
	}
	text := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[` + strings.Join(items, ",") +
		`]}`
	if table {
		text = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"columnDefinitions":` +
			`[],"rows":[` + strings.Join(items, ",") + `]}`
	}
	s, err := merge.Open("c", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return &listing{Source: s}
}

func differences(t *testing.T, then, now *listing) ([]event, error) {
	t.Helper()
	f := newFollower(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := f.difference(ctx, then, now)
		done <- err
	}()
	var events []event
	for {
		select {
		case e := <-f.events:
			events = append(events, e)
		case err := <-done:
			return events, err
		}
	}
}

func randomObjects(rng *rand.Rand) map[string]object {
	objects := map[string]object{}
	for _, key := range []string{"a/a", "a/b", "a-b/a", "a.b/a", "b/a", "/n", "b/c", "b/c-d", "c/a"} {
		if rng.IntN(3) > 0 {
			objects[key] = object{rng.IntN(2), rng.IntN(2)}
		}
	}
	return objects
}

func countChanges(before, after map[string]object) (n int) {
	for key, o := range after {
		if old, ok := before[key]; ok && old.uid != o.uid {
			n += 2 // the old object is deleted and another is added
		} else if !ok || old.version != o.version {
			n++
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			n++
		}
	}
	return n
}

func applyEvent(t *testing.T, objects map[string]object, e event) {
	t.Helper()
	at, err := identify(e.object, e.isRow)
	if err != nil || e.version != "" {
		t.Fatalf("an event %+v: %v", e, err)
	}
	old, exists := objects[at.key]
	var current object
	if _, err := fmt.Sscan(at.uid+" "+at.version, &current.uid, &current.version); err != nil {
		t.Fatal(err)
	}
	switch {
	case e.typ == "DELETED" && exists && old == current:
		delete(objects, at.key)
	case e.typ == "ADDED" && !exists, e.typ == "MODIFIED" && exists && old.uid == current.uid:
		objects[at.key] = current
	default:
		t.Fatalf("%s of %s, where %v exists: %v", e.typ, at.key, old, exists)
	}
}

// TestDifference fails if the events of a difference did not change the old list into the new one, or were too many.
func TestDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 500 {
		before, after := randomObjects(rng), randomObjects(rng)
		isTable := round%2 == 0
		events, err := differences(t, listOf(t, before, isTable), listOf(t, after, isTable))
		if err != nil {
			t.Fatal(err)
		}
		got, want := maps.Clone(before), countChanges(before, after)
		for _, e := range events {
			applyEvent(t, got, e)
		}
		if !maps.Equal(got, after) || len(events) != want {
			t.Fatalf("%v and %d events make %v, want %v with %d", before, len(events), got, after, want)
		}
	}
}

// TestDifferenceOfDisorder fails if lists in another order yielded events for objects that did not change.
func TestDifferenceOfDisorder(t *testing.T) {
	objects := map[string]object{"a/a": {}, "a/b": {}, "a/c": {}}
	if events, err := differences(t, listOf(t, objects, false, "a/a", "a/c", "a/b"),
		listOf(t, objects, false)); err == nil {
		t.Errorf("%d events", len(events))
	}
	cut, err := merge.Open("c", io.MultiReader(strings.NewReader(`{"kind":"PodList","apiVersion":"v1","metadata":{},`+
		`"items":[{"metadata":{"name":"a"}}`)))
	if err != nil {
		t.Fatal(err)
	}
	l := listOf(t, nil, false, "a/a")
	l.Source = cut
	if events, err := differences(t, l, listOf(t, objects, false)); err == nil {
		text, _ := json.Marshal(events)
		t.Errorf("of a list that broke off: %s", text)
	}
}
