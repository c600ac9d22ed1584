package fleet_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestFleetList fails if a list lacks objects of a cluster, its version, or an error that kube-apiserver would give.
func TestFleetList(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/one", "x/two")),
		respond(200, podList("20")), respond(200, podList("5", "y/one")))
	for _, form := range []string{"/fleet", "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy", allClusters,
		"/bridge/fleet"} {
		l, resp := h.list(form+"/api/v1/pods?labelSelector=a%3Db&pretty=false",
			http.Header{"User-Agent": {"kubectl/v1.36.0"}})
		if got := l.names(); got != "one@a two@a one@c" || l.Kind != "PodList" || resp.Header["Warning"] != nil {
			t.Errorf("%s: %s %q, %q", form, l.Kind, got, resp.Header["Warning"])
		}
		v, err := cursor.ParseVersion(l.Metadata.ResourceVersion)
		if err != nil || len(v) != 3 {
			t.Errorf("%s: version %s, %v", form, l.Metadata.ResourceVersion, err)
		}
		var own []string
		for _, id := range []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} {
			if v[id] != "" {
				own = append(own, v[id])
			}
		}
		if !slices.Equal(own, []string{"10", "20", "5"}) {
			t.Errorf("%s: versions %q", form, own)
		}
	}
	for _, m := range members {
		got := m.Requests()[0]
		if got.URI != "/api/v1/pods?labelSelector=a%3Db&pretty=false" || got.Header.Get("Impersonate-User") != "alice" ||
			got.Header.Get("Authorization") != "Bearer t" || got.Header.Get("Accept-Encoding") != "identity" ||
			got.Header.Get("User-Agent") != "kubectl/v1.36.0" {
			t.Errorf("the member receives %s %v", got.URI, got.Header)
		}
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?clusterSelector=env%3Dprod", nil, ""), 404,
		"unknown_cluster", "clusterSelector")
	for query, want := range map[string]string{"clusters=c,a": "one@a two@a one@c", "clusters=c": "one@c"} {
		if l, _ := h.list("/fleet/api/v1/pods?"+query, nil); l.names() != want {
			t.Errorf("%s: %q", query, l.names())
		}
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?clusters=nope", nil, ""), 404, "unknown_cluster",
		`no cluster "nope"`)
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/secrets", nil, ""), 404, "not_global", "no ResourceRegistry")
	for _, accept := range []string{"application/vnd.kubernetes.protobuf", "application/cbor", "application/cbor-seq"} {
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods", http.Header{"Accept": {accept}}, ""), 406,
			"not_acceptable", "application/json")
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?watch=1", http.Header{"Accept": {accept}}, ""), 406,
			"not_acceptable", "application/json")
	}
	if l, _ := h.list("/fleet/api/v1/pods",
		http.Header{"Accept": {"application/cbor, application/json"}}); l.Kind != "PodList" {
		t.Errorf("a client that prefers CBOR gets %+v", l)
	}
	gatewaytest.WantStatus(t, h.Do("POST", "/fleet/api/v1/namespaces/x/pods",
		http.Header{"Content-Type": {"application/cbor"}}, "\xd9\xd9\xf7\xa0"), 415, "unsupported_media",
		"JSON, YAML and protobuf")
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?resourceVersion=5", nil, ""), 410, "expired",
		"not one of the fleet's")
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?limit=1&continue=x", nil, ""), 400, "bad_request",
		"continue")
}

// TestListLimitIsChecked fails if a client does not learn which limits are valid.
func TestListLimitIsChecked(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/one")))
	for _, limit := range []string{"x", "-1", "3000000000"} {
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?limit="+limit, nil, ""), 400, "bad_request",
			"want a number from 0 to 2147483647")
	}
}

// TestListLimitFitsTokens fails if a page could have more objects than the continue token after it may skip.
func TestListLimitFitsTokens(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/one")))
	for limit, want := range map[int]int{100: 100, cursor.MaxSkip: cursor.MaxSkip, 2 * cursor.MaxSkip: cursor.MaxSkip} {
		if l, _ := h.list(fmt.Sprintf("/fleet/api/v1/pods?limit=%d", limit), nil); l.names() != "one@a" {
			t.Errorf("limit=%d: %q", limit, l.names())
		}
		for _, r := range members[0].TakeRequests() {
			if !strings.Contains(r.URI, fmt.Sprintf("limit=%d&", want)) {
				t.Errorf("limit=%d: the cluster gets %s, want limit=%d", limit, r.URI, want)
			}
		}
	}
}

// TestFleetPartialFailure fails if one failed member breaks a list, gives no warning, or passes in a strict list.
func TestFleetPartialFailure(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	good := respond(200, podList("10", "x/one"))
	for name, tt := range map[string]struct {
		bad     http.HandlerFunc // nil if no server listens at the address
		warning string
	}{
		"forbidden": {refuse(403, "Forbidden", "pods is forbidden: because"),
			`cluster \"b\": pods is forbidden: because`},
		"lacks the kind": {refuse(404, "NotFound", "the server could not find the requested resource"),
			"could not find the requested resource"},
		"fails":      {respond(500, "oops"), `cluster \"b\": HTTP 500`},
		"hangs":      {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "did not answer within"},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, `cluster \"b\"`},
		"no list":    {respond(200, `{"kind":"Pod","metadata":{}}`), "cannot be read"},
		"hangs in its head": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"PodList",`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "did not answer within"},
		"refuses the gateway": {respond(401, "{}"), "refuses the gateway's credential"},
		"redirects": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://x/")
			w.WriteHeader(302)
		}, "HTTP 302"},
		"another format": {respond(200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},`+
			`"columnDefinitions":[{"name":"Name"}],"rows":[]}`), "another format"},
		"is not there": {nil, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deadline := gatewaytest.FleetDeadline
			if strings.HasPrefix(name, "hangs") {
				deadline = hangDeadline
			}
			h, members := newFleet(t, gatewaytest.Options{FleetDeadline: deadline}, good, tt.bad)
			if tt.bad == nil {
				h.RotateSecret("b", bytes.Replace(members[1].Kubeconfig(`{token: t}`), []byte(members[1].URL),
					[]byte("https://127.0.0.1:1"), 1))
			}
			forms := []string{"/fleet"}
			if name == "forbidden" {
				forms = append(forms, allClusters)
			}
			for _, form := range forms {
				l, resp := h.list(form+"/api/v1/pods", nil)
				if got := strings.Join(resp.Header["Warning"], "\n"); l.names() != "one@a" ||
					!strings.HasPrefix(got, "299 clusterpass ") || !strings.Contains(got, tt.warning) {
					t.Errorf("%s: %q, warnings %s", form, l.names(), got)
				}
				if v, err := cursor.ParseVersion(l.Metadata.ResourceVersion); err != nil || len(v) != 1 {
					t.Errorf("%s: the version covers %v, %v", form, v, err)
				}
			}
			for query, header := range map[string]http.Header{"?strict": nil, "": {"X-Clusterpass-Strict": {"true"}}} {
				if resp := h.Do("GET", "/fleet/api/v1/pods"+query, header, ""); resp.StatusCode < 400 {
					t.Errorf("strict: %s", resp.Status)
				}
			}
		})
	}
}

// TestFleetReadsDoNotWaitForHangingCluster fails if reads of an object elsewhere wait, or writes do not.
func TestFleetReadsDoNotWaitForHangingCluster(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	var hangs, gone, both atomic.Bool
	pod := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			respond(200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`)(w, r)
			return
		}
		respond(200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)(w, r)
	}
	none := refuse(404, "NotFound", `pods "one" not found`)
	opts := gatewaytest.Options{FleetDeadline: hangDeadline, GracePeriod: 2 * time.Second}
	h, _ := newFleet(t, opts, func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() {
			none(w, r)
			return
		}
		pod(w, r)
	}, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case hangs.Load():
			<-r.Context().Done()
		case both.Load():
			pod(w, r)
		default:
			none(w, r)
		}
	})
	send := func(t *testing.T, method, path string, header http.Header, code int, want string) {
		t.Helper()
		resp := h.Do(method, "/fleet/api/v1/namespaces/x/pods/one"+path, header, "")
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(resp.Header["Warning"], " ") + string(body)
		if resp.StatusCode != code || !strings.Contains(got, want) {
			t.Errorf("%s %s: %d %s; want %d %s", method, path, resp.StatusCode, got, code, want)
		}
	}
	const elsewhere, slow = "did not respond within 2s", "did not answer within"
	const out = `to select the one that was found, use the name one@a`
	hangs.Store(true)
	send(t, "GET", "", nil, 200, slow) // the owner is not yet known
	upgrade := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	t.Run("b hangs", func(t *testing.T) {
		for _, tt := range []struct {
			method, path string
			header       http.Header
			code         int
			want         string
		}{
			{"GET", "", nil, 200, elsewhere},
			{"GET", "/log", nil, 200, elsewhere},
			{"GET", "?strict=true", nil, 502, slow},
			{"DELETE", "", nil, 502, out},
			{"GET", "/exec?command=true", upgrade, 502, out},
		} {
			t.Run(tt.method+" "+tt.path, func(t *testing.T) {
				t.Parallel() // most wait for the fleet's deadline
				send(t, tt.method, tt.path, tt.header, tt.code, tt.want)
			})
		}
	})
	send(t, "DELETE", "@a", nil, 200, "Success")
	gone.Store(true)
	send(t, "GET", "", nil, 502, slow)
	gone.Store(false)
	hangs.Store(false)
	both.Store(true)
	waittest.Until(t, "both are found", func() bool { // a slow machine may need more than the grace period
		resp := h.Do("GET", "/fleet/api/v1/namespaces/x/pods/one", nil, "")
		body, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusConflict && strings.Contains(string(body), "is in 2 clusters")
	})
}

// TestFleetMisdirected fails if a write reaches another cluster than the request names.
func TestFleetMisdirected(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	var writes atomic.Int32
	pod := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writes.Add(1)
		}
		respond(200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`)(w, r)
	}
	h, _ := newFleet(t, gatewaytest.Options{FleetDeadline: hangDeadline}, pod,
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h.AddRegistry("gates", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"g.io/v1","kind":"Gate"}]}`)
	const one = "/fleet/api/v1/namespaces/x/pods/one"
	body := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x","annotations":{"%s":"b"}}}`
	for _, annotation := range []string{"clusterpass.io/cluster", "resource.karmada.io/cached-from-cluster"} {
		gatewaytest.WantStatus(t, h.Do("PUT", one+"?clusters=a", http.Header{"Content-Type": {"application/json"}},
			fmt.Sprintf(body, annotation)), 422, "no_placement", `belongs to cluster "b"`)
	}
	for _, query := range []string{"?clusters=", "?clusters=a,", "?clusters=a&clusters="} {
		gatewaytest.WantStatus(t, h.Do("DELETE", "/fleet/api/v1/namespaces/x/pods"+query, nil, ""), 400, "bad_request",
			"clusters")
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/apis/g.io/v1/gateses", nil, ""), 502, "members_failed",
		"cannot determine")
	if n := writes.Load(); n > 0 {
		t.Errorf("%d writes reached a cluster", n)
	}
}

// TestFleetAllFail fails if the error of a request that fails in all clusters lacks a cause.
func TestFleetAllFail(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, refuse(403, "Forbidden", "no pods for you"),
		refuse(403, "Forbidden", "nor here"))
	for _, form := range []string{"/fleet", allClusters} {
		gatewaytest.WantStatus(t, h.Do("GET", form+"/api/v1/pods", nil, ""), 403, "members_refused",
			`cluster "a": no pods for you; cluster "b": nor here`)
	}
	h, _ = newFleet(t, gatewaytest.Options{}, refuse(403, "Forbidden", "no pods for you"), respond(500, ""))
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods", nil, ""), 502, "members_failed",
		`cluster "a": no pods for you; cluster "b": HTTP 500`)
	h, _ = newFleet(t, gatewaytest.Options{}, kindNotFound, kindNotFound)
	for method, path := range map[string]string{"GET": "", "DELETE": "/one", "PATCH": "/one@b"} {
		gatewaytest.WantStatus(t, h.Do(method, "/fleet/api/v1/namespaces/x/pods"+path, nil, ""), 404, "members_refused",
			`": the server could not find the requested resource`)
	}
	h, _ = newFleet(t, gatewaytest.Options{}, refuse(410, "Expired", "too old"), respond(200, podList("1")))
	version := cursor.Version{h.clusterID("a"): "10", h.clusterID("b"): "20"}.String()
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?resourceVersionMatch=Exact&resourceVersion="+version, nil,
		""), 410, "expired", "too old")
}

// TestFleetTruncatedListIsAnError fails if a client cannot recognize that a member's list ended too early.
func TestFleetTruncatedListIsAnError(t *testing.T) {
	large := podList("10", "x/"+strings.Repeat("y", 1<<20)) // so large that the client has received a part
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, large), func(w http.ResponseWriter, _ *http.Request) {
		list := podList("20", "x/two", "x/three")
		_, _ = io.WriteString(w, list[:len(list)-60])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp := h.Do("GET", "/fleet/api/v1/pods", nil, "")
	body, err := io.ReadAll(resp.Body)
	if err == nil || resp.StatusCode != 200 || len(body) < 1<<20 {
		t.Errorf("a truncated list is complete for the client: %s, %d bytes, %v", resp.Status, len(body), err)
	}
}

// TestFleetTables fails if kubectl get prints cells of clusters with different columns under the wrong columns.
func TestFleetTables(t *testing.T) {
	table := func(columns, cells string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Accept"), "as=Table") {
				t.Errorf("the member receives Accept: %q", r.Header.Get("Accept"))
			}
			respond(200,
				`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"columnDefinitions":[`+
					columns+`],"rows":[{"cells":[`+cells+`],"object":{"metadata":{"name":"x","namespace":"n"}}}]}`)(w, r)
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, table(`{"name":"Name","format":"name"},{"name":"Age"}`, `"x","5d"`),
		table(`{"name":"Name","format":"name"},{"name":"New"},{"name":"Age"}`, `"x",1,"6d"`))
	l, _ := h.list("/fleet/api/v1/pods",
		http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}})
	var columns []string
	for _, c := range l.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if got := fmt.Sprint(columns, l.Rows); got != "[Name Cluster New Age] [{[x a <nil> 5d]} {[x b 1 6d]}]" {
		t.Error(got)
	}
}

// TestFleetAccess fails if a cluster without a grant is called, or if a refusal reveals its name.
func TestFleetAccess(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/one")),
		respond(200, podList("20", "x/two")))
	h.Grant("some", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["a","zzz"],`+
		`"verbs":["get"]}`)
	logIn := func(groups ...string) {
		h.ClientTLS.Certificates[0] = h.ClientCertificate("bob", groups...)
		h.HTTPClient.CloseIdleConnections()
	}
	logIn("some")
	l, resp := h.list("/fleet/api/v1/pods", nil)
	if l.names() != "one@a" || resp.Header["Warning"] != nil || len(members[1].Requests()) != 0 {
		t.Errorf("%q, %v, b received %d requests", l.names(), resp.Header["Warning"], len(members[1].Requests()))
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?clusters=a,b", nil, ""), 403, "forbidden",
		`clusters.cluster.karmada.io "b" is forbidden`)
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?clusters=nope", nil, ""), 403, "forbidden",
		`clusters.cluster.karmada.io "nope" is forbidden`)
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?clusters=zzz", nil, ""), 404, "unknown_cluster",
		`no cluster "zzz"`)
	gatewaytest.WantStatus(t, h.Do("DELETE", "/fleet/api/v1/namespaces/x/pods/one", nil, ""), 403, "forbidden",
		"needs the verb delete on clusters/proxy")
	for _, path := range []string{"/fleet/api/v1/namespaces/x/pods/..@a",
		"/fleet/api/v1/foo/%2e%2e@a/namespaces/d/services/x/proxy/secret"} {
		gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), 400, "bad_request", `".." is no object's name`)
	}
	h.Grant("writers", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["a"],`+
		`"verbs":["*"]}`)
	logIn("writers")
	waittest.Until(t, "the grant is in force", func() bool {
		return h.Do("GET", "/fleet/api/v1/pods", nil, "").StatusCode == http.StatusOK
	})
	answers := map[string]bool{}
	for _, name := range []string{"p@b", "p@n"} {
		resp := h.Do("POST", "/fleet/api/v1/namespaces/x/pods", http.Header{"Content-Type": {"application/json"}},
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`+name+`"}}`)
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		answers[fmt.Sprint(resp.StatusCode, string(body))] = true
	}
	if len(answers) != 1 {
		t.Errorf("the errors differ: %v", answers)
	}
	logIn("none")
	for _, path := range []string{"/fleet/api/v1/pods", "/fleet/api/v1/secrets", "/fleet/api", "/fleet/version"} {
		gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), 403, "forbidden", "needs the verb get on clusters/proxy")
	}
	if n := len(members[1].Requests()); n != 0 {
		t.Errorf("b received %d requests", n)
	}
}

// TestFleetNamespaces fails if registries of some namespaces show objects of others.
func TestFleetNamespaces(t *testing.T) {
	all := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/namespaces/x/"):
			respond(200, podList("10", "x/one"))(w, r)
		case strings.Contains(r.URL.Path, "/namespaces/y/"):
			respond(200, podList("10", "y/two"))(w, r)
		default:
			respond(200, podList("10", "x/one", "y/two", "z/three"))(w, r)
		}
	}
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("a", clustertest.NewMember(t, all).Kubeconfig(`{token: t}`))
	h.AddCluster("b", clustertest.NewMember(t, all).Kubeconfig(`{token: t}`),
		func(s *v1alpha1.ClusterSpec) { s.Region = "eu" })
	h.AddRegistry("one", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod","namespace":"x"}]}`)
	h.AddRegistry("two", `{"targetCluster":{"fieldSelector":{"matchExpressions":[{"key":"region","operator":"In",`+
		`"values":["eu"]}]}},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod","namespace":"y"}]}`)
	for path, want := range map[string]string{
		"/fleet/api/v1/pods":              "one@a one@b two@b",
		"/fleet/api/v1/namespaces/x/pods": "one@a one@b",
		"/fleet/api/v1/namespaces/y/pods": "two@b",
	} {
		if l, _ := h.list(path, nil); l.names() != want {
			t.Errorf("%s: %q, want %q", path, l.names(), want)
		}
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/namespaces/z/pods", nil, ""), 404, "not_global",
		`has apiVersion v1 and their kind, without a namespace or with namespace "z", in spec.resourceSelectors`)
}

// TestFleetJoins fails if a cluster that is registered or labeled later is missing from lists.
func TestFleetJoins(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	m := clustertest.NewMember(t, respond(200, podList("10", "x/one")))
	h.AddRegistry("pods", `{"targetCluster":{"labelSelector":{"matchLabels":{"env":"prod"}}},`+
		`"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
	h.AddCluster("a", m.Kubeconfig(`{token: t}`))
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods", nil, ""), 404, "not_global", "no ResourceRegistry")
	o, err := h.Objects.Get(t.Context(), "clusters/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Objects.Update(t.Context(), o.Key,
		[]byte(strings.Replace(string(o.Value), `"name":"a"`, `"name":"a","labels":{"env":"prod"}`, 1)),
		o.Revision); err != nil {
		t.Fatal(err)
	}
	if l, _ := h.list("/fleet/api/v1/pods", nil); l.names() != "one@a" {
		t.Errorf("%q", l.names())
	}
}
