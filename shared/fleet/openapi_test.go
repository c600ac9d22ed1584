package fleet_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// withSchema returns the handler of a member with a schema. hash is its digest in the index.
func withSchema(hash, schema string, documents *atomic.Int32) http.HandlerFunc {
	const discovery = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{},
		"versions":[{"version":"v1","resources":[{"resource":"pods",
		"responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced","singularResource":"pod",
		"verbs":["get"]}]}]}]}`
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api":
			respond(200, discovery)(w, r)
		case "/apis":
			respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)(w, r)
		case "/openapi/v3":
			respond(200,
				`{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=`+hash+`"},`+
					`"apis/other/v1":{"serverRelativeURL":"/x"}}}`)(w, r)
		case "/openapi/v3/api/v1":
			documents.Add(1)
			respond(200, `{"components":{"schemas":{`+schema+`}}}`)(w, r)
		case "/openapi/v2":
			documents.Add(1)
			respond(200, `{"definitions":{`+schema+`}}`)(w, r)
		default:
			refuse(404, "NotFound", r.URL.Path)(w, r)
		}
	}
}

// TestFleetOpenAPI fails if equal documents are fetched twice for a caller, or cached for another one.
func TestFleetOpenAPI(t *testing.T) {
	var a, b, c atomic.Int32
	h, _ := newFleet(t, gatewaytest.Options{DiscoveryTTL: time.Hour}, withSchema("1", `"Pod":{"type":"a"}`, &a),
		withSchema("1", `"Pod":{"type":"b"}`, &b), withSchema("2", `"Pod":{"type":"c"},"More":{}`, &c))
	for path, tt := range map[string]struct {
		want   string
		second int32 // requests to the second member; v2 has no digest by which its document is known to be equal
	}{
		"/fleet/openapi/v3/api/v1": {`{"components":{"schemas":{"More":{},"Pod":{"type":"a"}}}}`, 0},
		"/fleet/openapi/v2":        {`{"definitions":{"More":{},"Pod":{"type":"a"}}}`, 1},
	} {
		for _, m := range []*atomic.Int32{&a, &b, &c} {
			m.Store(0)
		}
		h.LogIn("alice", "dev")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				got, resp := h.DoText("GET", path, nil, "")
				if got != tt.want || resp.StatusCode != 200 || resp.Header["Warning"] != nil {
					t.Errorf("%s: %s %s %v", path, resp.Status, got, resp.Header)
				}
			})
		}
		all.Wait()
		if a.Load() != 1 || b.Load() != tt.second || c.Load() != 1 {
			t.Errorf("%s: the members received %d, %d and %d requests", path, a.Load(), b.Load(), c.Load())
		}
		h.LogIn("bob", "dev")
		if got, _ := h.DoText("GET", path, nil, ""); got != tt.want || a.Load() != 2 || c.Load() != 2 {
			t.Errorf("%s: of another caller, the members received %d and %d requests: %s", path, a.Load(), c.Load(), got)
		}
	}
}

// TestFleetOpenAPIETags fails if a client receives a document that it has, or if the index has other digests.
func TestFleetOpenAPIETags(t *testing.T) {
	var a, c atomic.Int32
	h, _ := newFleet(t, gatewaytest.Options{}, withSchema("1", `"Pod":{"type":"a"}`, &a),
		withSchema("1", `"Pod":{"type":"b"}`, &a), withSchema("2", `"Pod":{"type":"c"},"More":{}`, &c))
	_, resp := h.DoText("GET", "/fleet/openapi/v3/api/v1", nil, "")
	etag := resp.Header.Get("Etag")
	got, again := h.DoText("GET", "/fleet/openapi/v3/api/v1", http.Header{"If-None-Match": {etag}}, "")
	if etag == "" || again.StatusCode != 304 || got != "" {
		t.Errorf("an equal document is sent again: %s %q", again.Status, etag)
	}
	index, _ := h.DoText("GET", "/fleet/openapi/v3", nil, "")
	if !strings.Contains(index, `"/openapi/v3/api/v1?hash=`+strings.Trim(etag, `"`)+`"`) ||
		strings.Contains(index, "other") {
		t.Errorf("the index is %s, its document %s", index, etag)
	}
	got, resp = h.DoText("GET", "/fleet/openapi/v3/api/v1?clusters=c", nil, "")
	if got != `{"components":{"schemas":{"Pod":{"type":"c"},"More":{}}}}` || resp.Header.Get("Etag") == etag {
		t.Errorf("of one cluster: %s", got)
	}
}

// TestFleetIncompleteOpenAPI fails if a missing document gives no warning, or if the incomplete result is cached.
func TestFleetIncompleteOpenAPI(t *testing.T) {
	for name, bad := range map[string]http.HandlerFunc{"garbage": respond(200, "{"),
		"refused": refuse(403, "Forbidden", "no"), "huge": func(w http.ResponseWriter, _ *http.Request) {
			chunk := strings.Repeat(" ", 1<<20)
			for range 17 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}} {
		for at, paths := range map[string][]string{"/openapi/v3": {"/openapi/v3", "/openapi/v3/api/v1"},
			"/openapi/v3/api/v1": {"/openapi/v3/api/v1"}, "/openapi/v2": {"/openapi/v2"}} {
			t.Run(name+at, func(t *testing.T) {
				t.Parallel()
				var a, b atomic.Int32
				var repaired atomic.Bool
				good := withSchema("1", `"A":{}`, &a)
				h, _ := newFleet(t, gatewaytest.Options{}, withSchema("2", `"B":{}`, &b),
					func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == at && !repaired.Load() {
							bad(w, r)
							return
						}
						good(w, r)
					})
				for _, path := range paths {
					for _, query := range []string{"", "?strict"} {
						got, resp := h.DoText("GET", "/fleet"+path+query, nil, "")
						if query != "" && resp.StatusCode < 400 || query == "" &&
							(resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Warning"), `cluster \"b\"`) ||
								strings.Contains(got, `"A"`)) {
							t.Errorf("%s%s: %s %v %s", path, query, resp.Status, resp.Header["Warning"], got)
						}
					}
				}
				repaired.Store(true)
				for _, path := range paths {
					if got, resp := h.DoText("GET", "/fleet"+path, nil, ""); resp.Header["Warning"] != nil || path != "/openapi/v3" &&
						!strings.Contains(got, `"A"`) {
						t.Errorf("%s, after the repair: %v %s", path, resp.Header["Warning"], got)
					}
				}
			})
		}
	}
}

// TestFleetOpenAPIOfAFailedMember fails if only registries are blamed for a document that a failed cluster may have.
func TestFleetOpenAPIOfAFailedMember(t *testing.T) {
	var a, b atomic.Int32
	good := withSchema("1", `"B":{}`, &b)
	h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/openapi/v3":
			respond(200, `{"paths":{}}`)(w, r)
		default:
			withSchema("1", `"A":{}`, &a)(w, r)
		}
	}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v3" {
			refuse(403, "Forbidden", "not for you")(w, r)
			return
		}
		good(w, r)
	})
	resp := h.Do("GET", "/fleet/openapi/v3/api/v1", nil, "")
	gatewaytest.WantStatus(t, resp, 404, "not_global", "nothing at")
	if got := resp.Header["Warning"]; len(got) != 1 || !strings.Contains(got[0], `cluster \"b\": not for you`) {
		t.Errorf("warnings %q", got)
	}
}

// TestFleetOpenAPIWarnsOfDiscovery fails if a client learns nothing of a cluster whose kinds are missing.
func TestFleetOpenAPIWarnsOfDiscovery(t *testing.T) {
	var a, b atomic.Int32
	silent := withSchema("1", `"B":{}`, &b)
	refuses := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis" {
			refuse(403, "Forbidden", "not for you")(w, r)
			return
		}
		silent(w, r)
	}
	h, _ := newFleet(t, gatewaytest.Options{}, withSchema("1", `"A":{}`, &a), refuses)
	for _, path := range []string{"/fleet/openapi/v3", "/fleet/openapi/v3/api/v1"} {
		text, resp := h.DoText("GET", path, nil, "")
		if got := resp.Header["Warning"]; resp.StatusCode != 200 || len(got) != 1 ||
			!strings.Contains(got[0], `cluster \"b\": not for you`) {
			t.Errorf("%s: %s %s, warnings %q", path, resp.Status, text, got)
		}
	}
}
