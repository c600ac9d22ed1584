package fleet_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetOfOneUsesOwnVersions fails if a client of a fleet of one cluster sees other versions than at the cluster.
func TestFleetOfOneUsesOwnVersions(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), _ *http.Request) {
		flush(podList("40", "x/listed"))
	}, func(flush func(string), r *http.Request) {
		flush(podEvent("MODIFIED", "live", "41") + podEvent("BOOKMARK", "", "42") + podEvent("DELETED", "live", "43"))
		<-r.Context().Done()
	}))
	l, _ := h.list("/fleet/api/v1/pods", nil)
	if l.Metadata.ResourceVersion != "40" {
		t.Errorf("the list has version %s", l.Metadata.ResourceVersion)
	}
	initial := []string{"ADDED listed 7", "BOOKMARK  40"}
	live := []string{"MODIFIED live 41", "BOOKMARK  42", "DELETED live 43"}
	for query, want := range map[string][]string{
		"resourceVersion=40&allowWatchBookmarks=true":                                       live,
		"resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true": append(initial, live...),
	} {
		lines := bufio.NewReader(h.Do("GET", "/fleet/api/v1/pods?watch=1&"+query, nil, "").Body)
		for _, want := range want {
			e := nextEvent(t, lines)
			if got := fmt.Sprintf("%s %s %s", e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
	}
}

// TestFleetOfOneRefusesOtherVersions fails if a client misses the changes of clusters that its version covers.
func TestFleetOfOneRefusesOtherVersions(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) {
		version := "40"
		if r.URL.Query().Get("resourceVersionMatch") == "Exact" {
			version = r.URL.Query().Get("resourceVersion")
		}
		respond(200, podList(version, "x/one"))(w, r)
	})
	a := h.clusterID("a")
	alone, others := cursor.Version{a: "30"}, cursor.Version{a: "30", a + 100: "9"}
	object := cursor.Version{a: "30"}.WithObject("7")
	for _, tt := range []struct {
		name, query string
		sent        string // the query to the cluster; "" if the response is 410
	}{
		{"list since its version in a composite", "resourceVersion=" + alone.String(), "resourceVersion=30"},
		{"list at its version in a composite", "resourceVersionMatch=Exact&resourceVersion=" + alone.String(),
			"resourceVersion=30&resourceVersionMatch=Exact"},
		{"list since its own version", "resourceVersion=30", "resourceVersion=30"},
		{"list since a composite of more clusters", "resourceVersion=" + others.String(), ""},
		{"list since an object's composite", "resourceVersion=" + object.String(), ""},
		{"page of a composite of more clusters", "limit=1&continue=" + cursor.Token{Version: others, Next: a}.String(), ""},
		{"watch from its version in a composite", "watch=1&resourceVersion=" + alone.String(), ""},
		{"watch from a composite of more clusters", "watch=1&resourceVersion=" + others.String(), ""},
		{"watch from an object's composite", "watch=1&resourceVersion=" + object.String(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			members[0].TakeRequests()
			if tt.sent == "" {
				why := "list from the start"
				if strings.HasPrefix(tt.query, "watch=") {
					why = "the request covers one now; list again, and watch from that list's resourceVersion"
				}
				gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?"+tt.query, nil, ""), 410, "expired", why)
				return
			}
			l, _ := h.list("/fleet/api/v1/pods?"+tt.query, nil)
			if l.names() != "one@a" || cursor.Composite(l.Metadata.ResourceVersion) {
				t.Errorf("%+v", l)
			}
			_, got, _ := strings.Cut(members[0].TakeRequests()[0].URI, "?")
			if want := "pretty=false&" + tt.sent; got != want {
				t.Errorf("the cluster receives %s, want %s", got, want)
			}
		})
	}
}

// TestFleetOfOnePassesContinueTokens fails if a client cannot get the remaining pages after a token expired.
func TestFleetOfOnePassesContinueTokens(t *testing.T) {
	const own = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAsInN0YXJ0IjoiYVx1MDAwMCJ9"
	const rest = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9"
	h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("continue") {
		case "":
			respond(200, strings.Replace(podList("10", "x/one"), `"10"`, `"10","continue":"`+own+`"`, 1))(w, r)
		case own:
			respond(410, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":"`+rest+`"},"status":"Failure",`+
				`"message":"too old","reason":"Expired","code":410}`)(w, r)
		default:
			respond(200, podList("20", "x/two"))(w, r)
		}
	})
	l, _ := h.list("/fleet/api/v1/pods?limit=1", nil)
	if l.names() != "one@a" || l.Metadata.Continue != own {
		t.Fatalf("the first page: %+v", l)
	}
	text, resp := h.DoText("GET", "/fleet/api/v1/pods?limit=1&continue="+own, nil, "")
	if resp.StatusCode != 410 || !strings.Contains(text, `"continue":"`+rest+`"`) {
		t.Errorf("a token that has expired: %d %s", resp.StatusCode, text)
	}
	l, _ = h.list("/fleet/api/v1/pods?limit=1&continue="+rest, nil)
	if l.names() != "two@a" || l.Metadata.ResourceVersion != "20" {
		t.Errorf("the rest: %+v", l)
	}
	h.AddCluster("b", clustertest.NewMember(t, respond(200, podList("5", "x/three"))).Kubeconfig(`{token: t}`))
	for query, want := range map[string]string{
		"limit=1&continue=" + own: "list from the start", "resourceVersion=10": "list again",
		"watch=1&resourceVersion=10": "list again",
	} {
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?"+query, nil, ""), 410, "expired", want)
	}
}

// TestFleetOfOnePassesTooLargeVersions fails if a client lists again although the cluster requires it to wait.
func TestFleetOfOnePassesTooLargeVersions(t *testing.T) {
	const cause = `{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}`
	const refusal = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too large",` +
		`"reason":"Timeout","details":{"causes":[` + cause + `],"retryAfterSeconds":1},"code":504}`
	h, _ := newFleet(t, gatewaytest.Options{}, respond(504, refusal))
	text, resp := h.DoText("GET", "/fleet/api/v1/pods?resourceVersion=99999999", nil, "")
	if resp.StatusCode != 504 || strings.TrimSpace(text) != refusal {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// TestFleetOfOneLosesHistory fails if a watch goes on with versions that are not the objects' own, so that writes fail.
func TestFleetOfOneLosesHistory(t *testing.T) {
	watched := make(chan struct{}, 1)
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), _ *http.Request) {
		flush(podList("5"))
	}, func(flush func(string), _ *http.Request) {
		select {
		case watched <- struct{}{}:
			flush("") // the watch ends, as when an API server restarts
		default:
			flush(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
				`"reason":"Expired","code":410}}` + "\n")
		}
	}))
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&resourceVersion=5", nil, "")
	if e := nextEvent(t, bufio.NewReader(resp.Body)); resp.StatusCode != 200 || e.Type != "ERROR" || e.Object.Code != 410 {
		t.Errorf("%d: %+v", resp.StatusCode, e)
	}
}

// TestFleetOfOneGrows fails if versions shrink when a cluster joins a watch, or if a client resumes without it.
func TestFleetOfOneGrows(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	rest, more := make(chan struct{}), make(chan struct{})
	wait := func(r *http.Request, until <-chan struct{}) {
		select {
		case <-until:
		case <-r.Context().Done():
		}
	}
	var listed atomic.Bool
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), _ *http.Request) {
		if listed.Swap(true) {
			flush(podList("8"))
			return
		}
		flush(podList("5"))
	}, func(flush func(string), r *http.Request) {
		flush(podEvent("ADDED", "alone", "6"))
		wait(r, rest)
		flush(podEvent("MODIFIED", "alone", "7"))
		wait(r, more)
		flush(podEvent("MODIFIED", "alone", "8"))
		<-r.Context().Done()
	}))
	l, _ := h.list("/fleet/api/v1/pods", nil)
	from := "/fleet/api/v1/pods?watch=1&resourceVersion="
	lines := bufio.NewReader(h.Do("GET", from+l.Metadata.ResourceVersion, nil, "").Body)
	var versions []string
	next := func(name string, status int) {
		t.Helper()
		e := nextEvent(t, lines)
		version := e.Object.Metadata.ResourceVersion
		if e.Object.Metadata.Name != name {
			t.Fatalf("%+v, want %s", e, name)
		}
		if name == "alone" {
			versions = append(versions, version)
		}
		again := h.Do("GET", from+version, nil, "")
		_ = again.Body.Close()
		if again.StatusCode != status {
			t.Errorf("the status of a watch from %s of %s is %d, want %d", version, name, again.StatusCode, status)
		}
	}
	next("alone", 200)
	h.AddCluster("b", clustertest.NewMember(t, serveWatch(func(flush func(string), r *http.Request) {
		all := podList("40", "x/one", "x/two")
		half := strings.Index(all, `,{"metadata":{"name":"two"`)
		flush(all[:half])
		wait(r, more)
		flush(all[half:])
	}, func(flush func(string), r *http.Request) {
		flush("")
		<-r.Context().Done()
	})).Kubeconfig(`{token: t}`))
	next("one", 410)
	close(rest)
	next("alone", 410) // while the second is being listed
	close(more)
	for range 2 {
		e := nextEvent(t, lines)
		if e.Object.Metadata.Name == "alone" {
			versions = append(versions, e.Object.Metadata.ResourceVersion)
		}
	}
	for i := range versions[1:] {
		if c, err := resourceversion.CompareResourceVersion(versions[i], versions[i+1]); err != nil || c != -1 {
			t.Errorf("versions of one object: %q", versions)
		}
	}
	if len(versions) != 3 || versions[0] != "6" || !cursor.Composite(versions[2]) {
		t.Errorf("versions of one object: %q", versions)
	}
}
