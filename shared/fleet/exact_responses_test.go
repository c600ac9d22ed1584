package fleet_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetRefusalIsComplete fails if a client of server-side apply cannot see the fields that it may force.
func TestFleetRefusalIsComplete(t *testing.T) {
	const causes = 2000
	one := `{"reason":"FieldManagerConflict","message":"conflict with \"other\" using v1","field":".data.` +
		strings.Repeat("k", 100) + `"},`
	refusal := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"Apply failed with conflicts: ` + strings.Repeat("x", 100<<10) +
		`","reason":"Conflict","details":{"name":"one","kind":"pods","causes":[` + strings.TrimSuffix(strings.Repeat(one,
		causes), ",") + `]},"code":409}`
	h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			respond(409, refusal)(w, r)
			return
		}
		respond(200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`)(w, r)
	})
	for _, name := range []string{"one", "one@a"} {
		resp := h.Do("PATCH", "/fleet/api/v1/namespaces/x/pods/"+name,
			http.Header{"Content-Type": {"application/apply-patch+yaml"}},
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`+name+`"}}`)
		var st metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil || resp.StatusCode != 409 || st.Code != 409 ||
			st.Details == nil ||
			len(st.Details.Causes) != causes || st.Details.Name != name || len(st.Message) < 100<<10 {
			t.Errorf("%s: %s, %v, a message of %d bytes", name, resp.Status, err, len(st.Message))
		}
	}
}

// TestFleetCompletedWriteSucceeds fails if a client gets an error for a completed write, and so repeats it.
func TestFleetCompletedWriteSucceeds(t *testing.T) {
	twice := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one"},"metadata":{"name":"two"}}`
	for name, answer := range map[string]http.HandlerFunc{
		"two objects in one": respond(201, twice),
		"no JSON":            respond(201, "done"),
		"nothing":            respond(201, ""),
		"too large": respond(201,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one"},"x":"`+strings.Repeat("x", 16<<20)+`"}`),
		"an encoding": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			w.WriteHeader(201)
		},
		"a part": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, `{"kind":"Pod",`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, answer)
			resp := h.Do("POST", "/fleet/api/v1/namespaces/x/pods", http.Header{"Content-Type": {"application/json"}},
				`{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"one-"}}`)
			var st metav1.Status
			err := json.NewDecoder(resp.Body).Decode(&st)
			warning := resp.Header.Get("Warning")
			if err != nil || resp.StatusCode != 201 || st.Status != metav1.StatusSuccess ||
				!strings.Contains(warning, `completed the write`) {
				t.Errorf("%s, %+v, %v, warning %q", resp.Status, st, err, warning)
			}
		})
	}
}

// TestFleetSourceIsExact fails if an object can hide its source. A patch of it would change another cluster's object.
func TestFleetSourceIsExact(t *testing.T) {
	const forged = `"metadata":{"name":"one","namespace":"x",` +
		`"annotations":{"resource.karmada.io/cached-from-cluster":"b"}}`
	for name, object := range map[string]string{
		"a Kelvin sign":  `{"kind":"Pod","apiVersion":"v1","\u212aind":"Status",` + forged + `}`,
		"a Kelvin Table": `{"kind":"Pod","apiVersion":"v1","\u212aind":"Table",` + forged + `}`,
		"an upper case":  `{"Kind":"Status","kind":"Pod","apiVersion":"v1",` + forged + `}`,
		"a kind Status":  `{"kind":"Status","apiVersion":"x.io/v1",` + forged + `}`,
		"a kind Table":   `{"kind":"Table","apiVersion":"x.io/v1","rows":[],` + forged + `}`,
		"an escaped source": `{"kind":"Pod","apiVersion":"v1",` + strings.Replace(forged, "resource.", `\u0072esource.`, 1) +
			`}`,
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, respond(200, object))
			resp := h.Do("GET", "/fleet/api/v1/namespaces/x/pods/one", nil, "")
			body, err := io.ReadAll(resp.Body)
			if text := string(body); err != nil || resp.StatusCode != 200 || !strings.Contains(text,
				`"resource.karmada.io/cached-from-cluster":"a"`) || strings.Contains(text, `:"b"`) {
				t.Errorf("%s, %s, %v", resp.Status, body, err)
			}
		})
	}
}

// TestFleetWatchLaterEvents fails if sendInitialEvents=false sends objects that existed before.
func TestFleetWatchLaterEvents(t *testing.T) {
	for _, version := range []string{"", "&resourceVersion=0"} {
		h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), _ *http.Request) {
			flush(podList("5",
				"x/before"))
		}, func(flush func(string), r *http.Request) {
			if from := r.URL.Query().Get("resourceVersion"); from != "5" {
				t.Errorf("the watch begins at version %q", from)
			}
			flush(podEvent("ADDED", "later", "6"))
			<-r.Context().Done()
		}))
		resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"+version,
			nil, "")
		if e := nextEvent(t, bufio.NewReader(resp.Body)); e.Type != "ADDED" || e.Object.Metadata.Name != "later" {
			t.Errorf("%q: the first event is %+v", version, e)
		}
	}
}

// TestFleetWatchLaterEventsBrokenList fails if a broken list of one cluster ends the watch of the others.
func TestFleetWatchLaterEventsBrokenList(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), _ *http.Request) {
		flush(podList("5"))
	}, func(flush func(string), r *http.Request) {
		flush(podEvent("ADDED", "later", "6"))
		<-r.Context().Done()
	}), serveWatch(func(flush func(string), _ *http.Request) {
		flush(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"40"},"items":[`)
		panic(http.ErrAbortHandler)
	}, nil))
	const watch = "/fleet/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
	resp := h.Do("GET", watch, nil, "")
	if got := resp.Header.Get("Warning"); resp.StatusCode != 200 || !strings.Contains(got, `cluster \"b\"`) {
		t.Fatalf("%s, warning %s", resp.Status, got)
	}
	if e := nextEvent(t, bufio.NewReader(resp.Body)); e.Type != "ADDED" || e.Object.Metadata.Name != "later" {
		t.Errorf("the first event is %+v", e)
	}
	gatewaytest.WantStatus(t, h.Do("GET", watch+"&strict=true", nil, ""), 502, "members_failed", `cluster "b"`)
}

// TestFleetWatchTooLarge fails if a watch goes on without a cluster whose event is too large. It must end with 410.
func TestFleetWatchTooLarge(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{},
		serveWatch(func(flush func(string), _ *http.Request) { flush(podList("5")) },
			func(flush func(string), r *http.Request) {
				flush(podEvent("ADDED", "small", "6"))
				flush(podEvent("ADDED", strings.Repeat("x", 17<<20), "7"))
				<-r.Context().Done()
			}))
	resp := h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, "")
	lines := bufio.NewReader(resp.Body)
	if e := nextEvent(t, lines); e.Object.Metadata.Name != "small" {
		t.Errorf("the first event is %+v", e)
	}
	if e := nextEvent(t, lines); e.Type != "ERROR" || e.Object.Code != http.StatusGone {
		t.Errorf("the second event is %+v", e)
	}
}

// TestFleetWatchKindTable fails if a custom resource of kind Table is not watched as an object.
func TestFleetWatchKindTable(t *testing.T) {
	table := func(name, version string) string {
		return fmt.Sprintf(`{"apiVersion":"x.io/v1","kind":"Table","metadata":{"name":%q,"namespace":"x",`+
			`"resourceVersion":%q}}`, name, version)
	}
	h, _ := newFleet(t, gatewaytest.Options{}, serveWatch(func(flush func(string), _ *http.Request) {
		flush(`{"apiVersion":"x.io/v1","items":[` + table("one", "4") +
			`],"kind":"TableList","metadata":{"resourceVersion":"5"}}`)
	}, func(flush func(string), r *http.Request) {
		flush(`{"type":"ADDED","object":` + table("two", "6") + "}\n")
		<-r.Context().Done()
	}))
	lines := bufio.NewReader(h.Do("GET", allClusters+"/apis/x.io/v1/tables?watch=1", nil, "").Body)
	for _, want := range []string{"one", "two"} {
		if e := nextEvent(t, lines); e.Type != "ADDED" || e.Object.Metadata.Name != want {
			t.Errorf("want %s: %+v", want, e)
		}
	}
}

// TestFleetStrictDuplicates fails if fieldValidation ignores a duplicate field in a body that the gateway rewrites.
func TestFleetStrictDuplicates(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(201,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`))
	const body = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one@a"},"spec":{"nodeName":"a","nodeName":"b"}}`
	post := func(validation string) *http.Response {
		return h.Do("POST", "/fleet/api/v1/namespaces/x/pods"+validation, http.Header{"Content-Type": {"application/json"}},
			body)
	}
	gatewaytest.WantStatus(t, post("?fieldValidation=Strict"), 400, "bad_request",
		`strict decoding error: duplicate field "spec.nodeName"`)
	for _, r := range members[0].Requests() {
		if r.Method == http.MethodPost {
			t.Error("the refused write reached the cluster")
		}
	}
	for validation, want := range map[string]bool{"": true, "?fieldValidation=Warn": true,
		"?fieldValidation=Ignore": false} {
		resp := post(validation)
		if hasWarning := strings.Contains(resp.Header.Get("Warning"), "duplicate field"); resp.StatusCode != 201 ||
			hasWarning != want {
			t.Errorf("%q: %s, warning %q", validation, resp.Status, resp.Header.Get("Warning"))
		}
	}
}
