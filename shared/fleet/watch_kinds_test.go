package fleet_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// kindOfNext reads an event of a watch, as TYPE KIND NAME, and whether it ends what was there.
func kindOfNext(t *testing.T, lines *bufio.Reader) (text string, ends bool) {
	t.Helper()
	var e struct {
		Type   string
		Object struct {
			Kind     string
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
	}
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &e)
	}
	if err != nil {
		t.Fatalf("%v after %q", err, line)
	}
	return strings.TrimSpace(e.Type + " " + e.Object.Kind + " " + e.Object.Metadata.Name), e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
}

// honestTwo reads what the two clusters have that do not lie.
func honestTwo(t *testing.T, lines *bufio.Reader) {
	t.Helper()
	one, _ := kindOfNext(t, lines)
	other, _ := kindOfNext(t, lines)
	if got := []string{one, other}; !slices.Contains(got, "ADDED Pod of-b") || !slices.Contains(got, "ADDED Pod of-c") {
		t.Fatal(got)
	}
}

// honest has one pod and nothing more to say.
func honest(name string) http.HandlerFunc {
	return watching(func(flush func(string), _ *http.Request) { flush(podList("5", "x/"+name)) }, func(flush func(string), r *http.Request) {
		flush("")
		<-r.Context().Done()
	})
}

// TestFleetWatchListOfAnotherKind holds: a cluster, though registered first, that lists something else than most, decides nothing for the client: the
// bookmark after all that was there is of the others' kind, and what else the cluster has is left out.
func TestFleetWatchListOfAnotherKind(t *testing.T) {
	for name, item := range map[string]string{"empty": "", "of one": `{"kind":"Evil","apiVersion":"v1","metadata":{"name":"evil","namespace":"x","resourceVersion":"3"}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan struct{}) // the others were
			h, _ := newFleet(t, gatewaytest.Options{}, watching(func(flush func(string), r *http.Request) {
				flush(`{"kind":"EvilList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`)
				select {
				case <-heard:
					flush(item + "]}\n")
				case <-r.Context().Done():
				}
			}, func(flush func(string), r *http.Request) {
				flush("")
				<-r.Context().Done()
			}), honest("of-b"), honest("of-c"))
			resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil, "")
			lines := bufio.NewReader(resp.Body)
			honestTwo(t, lines)
			close(heard)
			if got, ends := kindOfNext(t, lines); got != "BOOKMARK Pod" || !ends {
				t.Errorf("%s, the end: %v", got, ends)
			}
		})
	}
}

// TestFleetWatchEventOfAnotherKind holds: an event of another kind than most clusters' costs its cluster, until that sends what it was asked for; of
// what kind its bookmarks are is no matter.
func TestFleetWatchEventOfAnotherKind(t *testing.T) {
	heard := make(chan struct{}) // the others were
	var tries atomic.Int32
	h, _ := newFleet(t, gatewaytest.Options{}, watching(func(flush func(string), _ *http.Request) { flush(podList("5")) }, func(flush func(string), r *http.Request) {
		flush("")
		select {
		case <-heard:
		case <-r.Context().Done():
			return
		}
		if from := r.URL.Query().Get("resourceVersion"); from != "5" {
			t.Errorf("it is watched from %s", from)
		}
		const bookmark = `{"type":"BOOKMARK","object":{"kind":"Evil","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}` + "\n"
		if tries.Add(1) == 1 {
			flush(strings.Replace(podEvent("ADDED", "evil", "6"), "Pod", "Evil", 1) + bookmark)
		} else {
			flush(podEvent("ADDED", "mended", "6") + bookmark)
		}
		<-r.Context().Done()
	}), honest("of-b"), honest("of-c"))
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&allowWatchBookmarks=true", nil, "")
	lines := bufio.NewReader(resp.Body)
	honestTwo(t, lines)
	close(heard)
	for _, want := range []string{"ADDED Pod mended", "BOOKMARK Pod"} {
		if got, _ := kindOfNext(t, lines); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
