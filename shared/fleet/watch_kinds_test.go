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

// nextEventKind reads an event as TYPE KIND NAME. ends reports whether it is the bookmark after the initial events.
func nextEventKind(t *testing.T, lines *bufio.Reader) (text string, ends bool) {
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
	return strings.TrimSpace(e.Type + " " + e.Object.Kind + " " + e.Object.Metadata.Name),
		e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
}

func readHonestEvents(t *testing.T, lines *bufio.Reader) {
	t.Helper()
	one, _ := nextEventKind(t, lines)
	other, _ := nextEventKind(t, lines)
	if got := []string{one, other}; !slices.Contains(got, "ADDED Pod of-b") || !slices.Contains(got, "ADDED Pod of-c") {
		t.Fatal(got)
	}
}

// withHonestPod returns the handler of a member with one pod, whose watches send nothing.
func withHonestPod(name string) http.HandlerFunc {
	return serveWatch(func(flush func(string), _ *http.Request) { flush(podList("5", "x/"+name)) },
		func(flush func(string), r *http.Request) {
			flush("")
			<-r.Context().Done()
		})
}

// TestFleetWatchListOfAnotherKind fails if the first registered cluster changes the kind of a watch.
func TestFleetWatchListOfAnotherKind(t *testing.T) {
	for name, item := range map[string]string{"empty": "",
		"of one": `{"kind":"Evil","apiVersion":"v1","metadata":{"name":"evil","namespace":"x","resourceVersion":"3"}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			honestRead := make(chan struct{}) // closed when the events of the others were read
			h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), r *http.Request) {
				flush(`{"kind":"EvilList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`)
				select {
				case <-honestRead:
					flush(item + "]}\n")
				case <-r.Context().Done():
				}
			}, func(flush func(string), r *http.Request) {
				flush("")
				<-r.Context().Done()
			}), withHonestPod("of-b"), withHonestPod("of-c"))
			resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&"+initialEvents, nil, "")
			lines := bufio.NewReader(resp.Body)
			readHonestEvents(t, lines)
			close(honestRead)
			if got, ends := nextEventKind(t, lines); got != "BOOKMARK Pod" || !ends {
				t.Errorf("%s, the end: %v", got, ends)
			}
		})
	}
}

// TestFleetWatchEventOfAnotherKind fails if events of another kind are delivered, or if their cluster cannot return.
func TestFleetWatchEventOfAnotherKind(t *testing.T) {
	honestRead := make(chan struct{}) // closed when the events of the others were read
	var tries atomic.Int32
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string),
		_ *http.Request) {
		flush(podList("5"))
	}, func(flush func(string), r *http.Request) {
		flush("")
		select {
		case <-honestRead:
		case <-r.Context().Done():
			return
		}
		if from := r.URL.Query().Get("resourceVersion"); from != "5" {
			t.Errorf("the watch begins at version %s", from)
		}
		const bookmark = `{"type":"BOOKMARK","object":{"kind":"Evil","apiVersion":"v1",` +
			`"metadata":{"resourceVersion":"7"}}}` + "\n"
		if tries.Add(1) == 1 {
			flush(strings.Replace(podEvent("ADDED", "evil", "6"), "Pod", "Evil", 1) + bookmark)
		} else {
			flush(podEvent("ADDED", "repaired", "6") + bookmark)
		}
		<-r.Context().Done()
	}), withHonestPod("of-b"), withHonestPod("of-c"))
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&allowWatchBookmarks=true", nil, "")
	lines := bufio.NewReader(resp.Body)
	readHonestEvents(t, lines)
	close(honestRead)
	for _, want := range []string{"ADDED Pod repaired", "BOOKMARK Pod"} {
		if got, _ := nextEventKind(t, lines); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
