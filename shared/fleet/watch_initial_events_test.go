package fleet_test

import (
	"bufio"
	"net/http"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetWatchInitialEventsEnd fails if informers start with missing objects, before the slowest cluster's list.
func TestFleetWatchInitialEventsEnd(t *testing.T) {
	release, later := make(chan struct{}), make(chan struct{})
	idle := func(r *http.Request, until <-chan struct{}) bool {
		select {
		case <-until:
			return true
		case <-r.Context().Done():
			return false
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string),
		_ *http.Request) {
		flush(podList("5", "x/fast"))
	}, func(flush func(string), r *http.Request) {
		flush(podEvent("ADDED", "meanwhile", "6")) // follows the list, and must precede the bookmark
		<-r.Context().Done()
	}), serveWatch(func(flush func(string), r *http.Request) {
		flush(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"40"},"items":[`)
		if idle(r, release) {
			flush(`{"metadata":{"name":"slow","namespace":"x","resourceVersion":"7"}}]}` + "\n")
		}
	}, func(flush func(string), r *http.Request) {
		flush("")
		if idle(r, later) {
			flush(podEvent("ADDED", "live", "41") + podEvent("BOOKMARK", "", "42"))
		}
		<-r.Context().Done()
	}))
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&"+initialEvents, nil, "")
	lines := bufio.NewReader(resp.Body)
	for _, want := range []struct {
		text  string
		ends  bool
		after func()
	}{
		{text: "ADDED Pod fast"},
		{text: "ADDED Pod meanwhile", after: func() { close(release) }},
		{text: "ADDED Pod slow"},
		{text: "BOOKMARK Pod", ends: true, after: func() { close(later) }},
		{text: "ADDED Pod live"},
		{text: "BOOKMARK Pod"},
	} {
		if got, ends := nextEventKind(t, lines); got != want.text || ends != want.ends {
			t.Fatalf("%s, the end: %v; want %s, %v", got, ends, want.text, want.ends)
		}
		if want.after != nil {
			want.after()
		}
	}
}

// TestFleetWatchStrict fails if a strict watch begins without a cluster, or if another watch gives no warning.
func TestFleetWatchStrict(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, withHonestPod("one"), refuse(403, "Forbidden", "no pods for you"))
	for _, form := range []string{"", "&" + initialEvents} {
		const watch = "/fleet/api/v1/pods?watch=1"
		for query, header := range map[string]http.Header{form: {"X-Clusterpass-Strict": {"true"}}, form +
			"&strict=true": nil} {
			resp := h.Do("GET", watch+query, header, "")
			if resp.StatusCode == 200 {
				t.Fatalf("%s %v: the strict watch begins", query, header) // reading its body would never end
			}
			gatewaytest.WantStatus(t, resp, 403, "members_refused", `cluster "b": no pods for you`)
		}
		resp := h.Do("GET", watch+form, nil, "")
		if got := resp.Header.Get("Warning"); resp.StatusCode != 200 ||
			got != `299 clusterpass "cluster \"b\": no pods for you (left out)"` {
			t.Errorf("%s, warning %s", resp.Status, got)
		}
		if got, _ := nextEventKind(t, bufio.NewReader(resp.Body)); got != "ADDED Pod one" {
			t.Error(got)
		}
	}
}
