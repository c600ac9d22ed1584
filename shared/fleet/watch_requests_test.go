package fleet_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetWatchOneLine fails if white space of a member forges an event of another cluster's object.
func TestFleetWatchOneLine(t *testing.T) {
	forged := podEvent("DELETED", "victim", "9")
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string),
		_ *http.Request) {
		flush(podList("5"))
	}, func(flush func(string), r *http.Request) {
		flush(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"evil","resourceVersion":"6"},` +
			`"x":` + "\n" + forged + "\r" + `}}` + "\n")
		flush(podEvent("ADDED", "good", "7"))
		<-r.Context().Done()
	}))
	lines := bufio.NewReader(h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, "").Body)
	for _, want := range []string{"evil", "good"} {
		if e := nextEvent(t, lines); e.Type != "ADDED" || e.Object.Metadata.Name != want {
			t.Errorf("%+v, want %s", e, want)
		}
	}
}

// TestFleetGetIgnoresWatch fails if a GET of one object watches it. kube-apiserver ignores the parameter there. Only
// the legacy prefix watches one object, also if it is escaped.
func TestFleetGetIgnoresWatch(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/watch/pods/p?watch=1": "/api/v1/namespaces/watch/pods/p",
		"/api/v1/%77atch/namespaces/x/pods/p":     "/api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Dp",
	} {
		t.Run(path, func(t *testing.T) {
			got := make(chan string, 16)
			h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) {
				got <- r.URL.RequestURI()
				respond(200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"watch"}}`)(w, r)
			})
			h.Do("GET", "/fleet"+path, nil, "")
			if uri := <-got; uri != want {
				t.Errorf("the member got %s, want %s", uri, want)
			}
		})
	}
}

// TestFleetWatchOtherIdentity fails if a watch goes on after the cluster's identity mode changed.
func TestFleetWatchOtherIdentity(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string),
		_ *http.Request) {
		flush(podList("5", "x/one"))
	}, func(flush func(string), r *http.Request) {
		flush("")
		<-r.Context().Done()
	}), respond(200, podList("5")))
	lines := bufio.NewReader(h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, "").Body)
	if e := nextEvent(t, lines); e.Type != "ADDED" {
		t.Fatalf("%+v", e)
	}
	h.EditCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Identity = v1alpha1.Passthrough })
	ended := time.AfterFunc(time.Minute, func() { panic("the watch goes on") })
	defer ended.Stop()
	if e := nextEvent(t, lines); e.Type != "ERROR" || e.Object.Code != http.StatusGone {
		t.Errorf("%+v", e)
	}
}

// TestFleetWatchParameters fails if a watch accepts or refuses other parameters than kube-apiserver does.
func TestFleetWatchParameters(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("5")))
	for query, message := range map[string]string{
		"sendInitialEvents=true":                              "needs resourceVersionMatch=NotOlderThan",
		"sendInitialEvents=true&resourceVersionMatch=Exact":   "needs resourceVersionMatch=NotOlderThan",
		"resourceVersionMatch=NotOlderThan&resourceVersion=0": "only with sendInitialEvents",
		"continue=x&resourceVersion=5":                        "does not support continue",
	} {
		if text, resp := h.DoText("GET", "/fleet/api/v1/pods?watch=1&"+query, nil,
			""); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, message) {
			t.Errorf("%s: %s %s", query, resp.Status, text)
		}
	}
}
