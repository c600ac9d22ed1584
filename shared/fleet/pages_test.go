package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetVersionMatch fails if a list by the fleet's version requests a version of a cluster that is not its own.
func TestFleetVersionMatch(t *testing.T) {
	at := func(fresh string) http.HandlerFunc { // responds at the requested version for Exact
		return func(w http.ResponseWriter, r *http.Request) {
			version := fresh
			if r.URL.Query().Get("resourceVersionMatch") == "Exact" {
				version = r.URL.Query().Get("resourceVersion")
			}
			respond(200, podList(version, "x/one"))(w, r)
		}
	}
	h, members := newFleet(t, gatewaytest.Options{}, at("12"), at("25"), at("7"))
	two := cursor.Version{h.clusterID("a"): "10", h.clusterID("b"): "20"}.String()
	for _, tt := range []struct {
		match, names string
		queries      [3]string // the queries to the clusters; "-" for no request
		versions     []string
	}{
		{"", "one@a one@b one@c", [3]string{"resourceVersion=10", "resourceVersion=20", ""}, []string{"12", "25", "7"}},
		{"NotOlderThan", "one@a one@b one@c",
			[3]string{"resourceVersion=10&resourceVersionMatch=NotOlderThan",
				"resourceVersion=20&resourceVersionMatch=NotOlderThan", ""}, []string{"12", "25", "7"}},
		{"Exact", "one@a one@b", [3]string{"resourceVersion=10&resourceVersionMatch=Exact",
			"resourceVersion=20&resourceVersionMatch=Exact", "-"}, []string{"10", "20", ""}},
	} {
		query := url.Values{"resourceVersion": {two}}
		if tt.match != "" {
			query.Set("resourceVersionMatch", tt.match)
		}
		l, resp := h.list("/fleet/api/v1/pods?"+query.Encode(), nil)
		if l.names() != tt.names || resp.Header["Warning"] != nil {
			t.Errorf("%q: %q, warnings %q", tt.match, l.names(), resp.Header["Warning"])
		}
		v, err := cursor.ParseVersion(l.Metadata.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range members {
			got := "-"
			for _, r := range m.TakeRequests() {
				_, query, _ := strings.Cut(r.URI, "?pretty=false")
				got = strings.TrimPrefix(query, "&")
			}
			if name := string(rune('a' + i)); got != tt.queries[i] || v[h.clusterID(name)] != tt.versions[i] {
				t.Errorf("%q: %s receives %q and is at %q; want %q, %q", tt.match, name, got, v[h.clusterID(name)],
					tt.queries[i], tt.versions[i])
			}
		}
	}
	h.Delete("clusters/b")
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?resourceVersionMatch=Exact&resourceVersion="+two, nil, ""),
		410, "expired", "list from the start")
}

// TestFleetPageExpired fails if a page is served after a cluster lost its history.
func TestFleetPageExpired(t *testing.T) {
	expired := refuse(410, "Expired", "too old")
	for name, tt := range map[string]struct {
		a, b func(r *http.Request) http.HandlerFunc
	}{
		"its token": {func(r *http.Request) http.HandlerFunc {
			if r.URL.Query().Has("continue") {
				return expired
			}
			return respond(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10","continue":"own"},`+
				`"items":[{"metadata":{"name":"one","namespace":"x"}}]}`)
		}, func(*http.Request) http.HandlerFunc { return respond(200, podList("20", "x/two")) }},
		"its version": {func(*http.Request) http.HandlerFunc { return respond(200, podList("10", "x/one")) },
			func(r *http.Request) http.HandlerFunc {
				if r.URL.Query().Get("resourceVersionMatch") == "Exact" {
					return expired
				}
				return respond(200, podList("20", "x/two"))
			}},
	} {
		h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) { tt.a(r)(w, r) },
			func(w http.ResponseWriter, r *http.Request) { tt.b(r)(w, r) })
		l, _ := h.list("/fleet/api/v1/pods?limit=1", nil)
		if l.names() != "one@a" || l.Metadata.Continue == "" {
			t.Fatalf("%s: the first page: %q, %q", name, l.names(), l.Metadata.Continue)
		}
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?limit=1&continue="+l.Metadata.Continue, nil, ""), 410,
			"expired", "too old: list from the start")
		if name == "its version" {
			exact := "/fleet/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=" + l.Metadata.ResourceVersion
			gatewaytest.WantStatus(t, h.Do("GET", exact, nil, ""), 410, "expired", "too old: list from the start")
		}
	}
}

// TestFleetPageFails fails if a second failure hides the 410 of a cluster that lost its history.
func TestFleetPageFails(t *testing.T) {
	later := func(bad http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("resourceVersionMatch") == "Exact" {
				bad(w, r)
				return
			}
			respond(200, podList("10", "x/one"))(w, r)
		}
	}
	plain := respond(410, "gone\n") // the body is no Status
	tooLarge := respond(504, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"Timeout: Too large resource version: 10, current: 5","reason":"Timeout",`+
		`"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],`+
		`"retryAfterSeconds":1},"code":504}`)
	for name, gone := range map[string]http.HandlerFunc{"its history is gone": refuse(410, "Expired", "too old"),
		"its error is no Status": plain, "it was restored": tooLarge} {
		h, _ := newFleet(t, gatewaytest.Options{}, later(respond(200, podList("10", "x/one"))), later(respond(500, "oops")),
			later(gone))
		l, _ := h.list("/fleet/api/v1/pods?limit=1", nil)
		for path, query := range map[string]string{"a page": "limit=1&continue=" + l.Metadata.Continue,
			"a version": "resourceVersionMatch=Exact&resourceVersion=" + l.Metadata.ResourceVersion} {
			resp := h.Do("GET", "/fleet/api/v1/pods?"+query, nil, "")
			t.Log(name, path)
			gatewaytest.WantStatus(t, resp, 410, "expired", `cluster "c": `)
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/one")), refuse(410, "Expired", "too old"))
	for _, query := range []string{"", "?limit=1", "?resourceVersion=0"} {
		l, resp := h.list("/fleet/api/v1/pods"+query, nil)
		if got := strings.Join(resp.Header["Warning"], "\n"); l.names() != "one@a" ||
			!strings.Contains(got, `cluster \"b\": too old (left out)`) {
			t.Errorf("%s: %q, warnings %s", query, l.names(), got)
		}
	}
	watch := h.Do("GET", "/fleet/api/v1/pods?watch=1", nil, "")
	if got := strings.Join(watch.Header["Warning"], "\n"); watch.StatusCode != 200 ||
		!strings.Contains(got, `cluster \"b\": too old`) {
		t.Errorf("a watch: %s, warnings %s", watch.Status, got)
	}
	_ = watch.Body.Close()
}

// TestFleetPagesAreFull fails if a list of many small clusters needs many requests of the client, one after the other.
// It also fails if the pages of large clusters call many of them in vain.
func TestFleetPagesAreFull(t *testing.T) {
	const clusters, limit = 60, 30
	for name, tt := range map[string]struct {
		pods      int // of each cluster
		query     string
		pages     int
		wantCalls int // of clusters by all pages after the first, at most
	}{
		"small clusters":            {1, "", 2, clusters},
		"small clusters, selected":  {1, "&labelSelector=a", 2, clusters},
		"empty clusters":            {0, "", 1, 0},
		"clusters of half a page":   {limit / 2, "", clusters / 2, 4 * clusters / 2},
		"clusters of several pages": {2*limit + 1, "&clusters=c0,c1,c2,c3,c4,c5,c6,c7", 17, 4 * 16},
	} {
		t.Run(name, func(t *testing.T) {
			h, member := newGateway(t, gatewaytest.Options{}), clustertest.NewMember(t, servePages(tt.pods))
			for i := range clusters {
				h.AddCluster(fmt.Sprint("c", i), member.Kubeconfig(`{token: t}`))
			}
			h.AddRegistry("pods", allPods)
			query := fmt.Sprintf("/fleet/api/v1/pods?limit=%d%s&continue=", limit, tt.query)
			first, _ := h.list(query, nil)
			member.TakeRequests()
			items, pages := len(first.Items), 1
			for cont := first.Metadata.Continue; cont != ""; pages++ {
				l, _ := h.list(query+cont, nil)
				items, cont = items+len(l.Items), l.Metadata.Continue
			}
			if calls := len(member.TakeRequests()); pages != tt.pages || calls > tt.wantCalls {
				t.Errorf("%d objects in %d pages by %d calls, want %d pages by %d", items, pages, calls, tt.pages, tt.wantCalls)
			}
		})
	}
}

// TestFleetLongContinue fails if a cluster with a continue token too long for URLs breaks pages of the others.
func TestFleetLongContinue(t *testing.T) {
	long := fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10","continue":%q},`+
		`"items":[{"metadata":{"name":"one","namespace":"x"}}]}`, strings.Repeat("x", 9<<10))
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, long), respond(200, podList("10", "x/one")))
	l, resp := h.list("/fleet/api/v1/pods?limit=1", nil)
	if got := strings.Join(resp.Header["Warning"], "\n"); l.names() != "one@b" ||
		!strings.Contains(got, `list of cluster \"a\" cannot be read: its continue token is over 8 KiB`) {
		t.Errorf("%q, warnings %s", l.names(), got)
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?limit=1&strict=true", nil, ""), 502, "members_failed",
		"its continue token is over 8 KiB")
}

// TestFleetPartialMetadata fails if metadata-only objects and lists, which informers use, lack their cluster.
func TestFleetPartialMetadata(t *testing.T) {
	const single, list = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	const head = `"apiVersion":"meta.k8s.io/v1","metadata":{"name":"one","namespace":"x"`
	member := func(w http.ResponseWriter, r *http.Request) {
		switch accept := r.Header.Get("Accept"); {
		case strings.HasPrefix(accept, list+", application/json") && r.URL.Path == "/api/v1/pods":
			respond(200, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`+
				`"metadata":{"resourceVersion":"5"},"items":[{"kind":"PartialObjectMetadata",`+head+`}}]}`)(w, r)
		case strings.HasPrefix(accept, single+", application/json") && r.URL.Path == "/api/v1/namespaces/x/pods/one":
			respond(200, `{"kind":"PartialObjectMetadata",`+head+`}}`)(w, r)
		default:
			t.Errorf("the member receives %s with Accept: %q", r.URL, accept)
			refuse(406, "NotAcceptable", "no")(w, r)
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, member, member)
	protobuf := func(form string) http.Header { // as client-go's metadata client sends
		return http.Header{"Accept": {strings.Replace(form, "/json", "/vnd.kubernetes.protobuf", 1) + "," + form +
			",application/json"}}
	}
	if l, _ := h.list("/fleet/api/v1/pods", protobuf(list)); l.Kind != "PartialObjectMetadataList" ||
		l.names() != "one@a one@b" {
		t.Errorf("a list: %+v", l)
	}
	body, err := io.ReadAll(h.Do("GET", "/fleet/api/v1/namespaces/x/pods/one@b", protobuf(single), "").Body)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Kind, APIVersion string
		Metadata         struct {
			Name        string
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatal(err)
	}
	want := "{PartialObjectMetadata meta.k8s.io/v1 {one@b map[resource.karmada.io/cached-from-cluster:b]}}"
	if got := fmt.Sprint(o); got != want {
		t.Errorf("an object: %s", got)
	}
}
