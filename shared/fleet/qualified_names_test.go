package fleet_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// withPod returns the handler of a member with one pod in namespace x. It answers writes with their body.
func withPod(name string) http.HandlerFunc {
	pod := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"x","resourceVersion":"7",`+
		`"ownerReferences":[{"kind":"Node","name":"n"}]},"spec":{"nodeName":"n",`+
		`"volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}`, name)
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut || r.Method == http.MethodDelete:
			respond(200, `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"`+name+`"}}`)(w, r)
		case strings.HasSuffix(r.URL.Path, "/pods/"+name):
			respond(200, pod)(w, r)
		case r.Method == http.MethodPost:
			respond(201, pod)(w, r)
		case !strings.HasSuffix(r.URL.Path, "/pods"):
			respond(404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound",`+
				`"message":"pods \"no\" not found","details":{"name":"no"},"code":404}`)(w, r)
		case r.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", strings.Replace(pod, `"7"`, `"30"`, 1))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.Contains(r.Header.Get("Accept"), "as=Table"):
			respond(200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"20"},`+
				`"columnDefinitions":[{"name":"Ready"},{"name":"Name","format":"name"}],`+
				`"rows":[{"cells":["1/1","`+name+`"],"object":`+pod+`}]}`)(w, r)
		default:
			respond(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"20"},"items":[`+pod+`]}`)(w, r)
		}
	}
}

// TestFleetQualified fails if a name in a response below "@" does not lead back to the object.
func TestFleetQualified(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, withPod("one"), withPod("one"))
	const pods = "/api/v1/namespaces/x/pods"
	for _, form := range []string{"/fleet/@", "/fleet/%40", "/bridge/fleet/@",
		"/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/@", "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/@"} {
		l, resp := h.list(form+pods, nil)
		if got := l.names(); got != "one@a@a one@b@b" || len(resp.Header["Warning"]) > 0 ||
			!cursor.Composite(l.Metadata.ResourceVersion) {
			t.Errorf("%s: %s %v", form, got, l.Metadata)
		}
	}
	l, _ := h.list("/fleet/@"+pods,
		http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}})
	if got := fmt.Sprint(l.Rows); got != "[{[1/1 one@a a]} {[1/1 one@b b]}]" {
		t.Errorf("a table: %s", got)
	}
	page, _ := h.list("/fleet/@"+pods+"?limit=1", nil)
	last, _ := h.list("/fleet/@"+pods+"?limit=1&continue="+page.Metadata.Continue, nil)
	if page.names()+" "+last.names() != "one@a@a one@b@b" || last.Metadata.Continue != "" {
		t.Errorf("pages: %s, %s", page.names(), last.names())
	}

	resp := h.Do("GET", "/fleet/@"+pods+"?watch=1&resourceVersion="+l.Metadata.ResourceVersion, nil, "")
	lines, isComposite := bufio.NewReader(resp.Body), map[string]bool{} // by the names of events
	for range members {
		e := nextEvent(t, lines)
		isComposite[e.Object.Metadata.Name] = cursor.Composite(e.Object.Metadata.ResourceVersion)
	}
	if !isComposite["one@a"] || !isComposite["one@b"] {
		t.Errorf("events: %v", isComposite)
	}
	_ = resp.Body.Close()

	for path, want := range map[string]string{
		pods + "/one@b": `"name":"one@b","namespace":"x","resourceVersion":"7","ownerReferences":[{"kind":"Node",` +
			`"name":"n@b"}]},"spec":{"nodeName":"n","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}`,
		pods + "/no@b": `"details":{"name":"no@b"},"kind":"Status","message":"pods \"no@b\" not found"`,
		pods + "/no":   `"details":{"name":"no@a"}`,
		pods + "/one":  `pods \"one\" is in 2 clusters: a, b; name one of them, as one@a or one@b`,
		"/api/v1/pods?fieldSelector=metadata.name%3Done%40b,spec.nodeName%3Dn%40b": `"items":[{"kind":"Pod",` +
			`"apiVersion":"v1","metadata":{"annotations":{"resource.karmada.io/cached-from-cluster":"b"},"name":"one@b"`,
	} {
		if got := describeResponse(t, h.Do("GET", "/fleet/@"+path, nil, "")); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
	}
	for _, m := range members {
		m.TakeRequests()
	}
	body := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one@b","namespace":"x","resourceVersion":"` +
		l.Metadata.ResourceVersion + `","ownerReferences":[{"kind":"Node","name":"n@b"}]}}`
	if got := describeResponse(t, h.Do("PUT", "/fleet/@"+pods+"/one@b", http.Header{"Content-Type": {"application/json"}},
		body)); !strings.Contains(got, `"name":"one@b"`) {
		t.Errorf("the response to an update is %s", got)
	}
	if got := describeResponse(t, h.Do("DELETE", "/fleet/@"+pods+"/one@b", nil, "")); !strings.Contains(got,
		`"name":"one@b"`) {
		t.Errorf("the response to a deletion is %s", got)
	}
	var received []string
	for _, r := range members[1].TakeRequests() {
		received = append(received, r.Method+" "+r.URI+" "+r.Body)
	}
	if got := strings.Join(received, "\n"); len(members[0].TakeRequests()) > 0 ||
		got != "PUT "+pods+`/one {"apiVersion":"v1","kind":"Pod","metadata":{"name":"one","namespace":"x",`+
			`"ownerReferences":[{"kind":"Node","name":"n"}],"resourceVersion":"20"}}`+"\nDELETE "+pods+"/one " {
		t.Errorf("b receives\n%s", got)
	}
}

// TestFleetKeepsNamesInNamespaceOfCluster fails if responses have other names than requests. Clients such as helm then
// delete what they have just applied, or wait for it in vain.
func TestFleetKeepsNamesInNamespaceOfCluster(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, withPod("one"), withPod("one"))
	const pods = "/api/v1/namespaces/x@b/pods"
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"x@b"}}`
	asTable := http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}}
	patch := http.Header{"Content-Type": {"application/strategic-merge-patch+json"}}
	for _, prefix := range []string{"/fleet", "/fleet/@"} {
		for _, tt := range []struct {
			method, path string
			header       http.Header
			body, want   string
		}{
			{"GET", pods + "/one", nil, "", `"name":"one","namespace":"x@b"`},
			{"GET", pods + "/one@b", nil, "", `"name":"one@b","namespace":"x@b"`},
			{"GET", pods, nil, "", `"name":"one","namespace":"x@b"`},
			{"GET", pods + "?fieldSelector=metadata.name%3Done", nil, "", `"name":"one","namespace":"x@b"`},
			{"GET", pods, asTable, "", `"cells":["1/1","one","b"]`},
			{"GET", pods + "/no", nil, "", `"details":{"name":"no"}`},
			{"POST", pods, inJSON, fmt.Sprintf(pod, "one"), `"name":"one","namespace":"x@b"`},
			{"POST", pods, inJSON, fmt.Sprintf(pod, "one@b"), `"name":"one@b","namespace":"x@b"`},
			{"PUT", pods + "/one", inJSON, fmt.Sprintf(pod, "one"), `"details":{"name":"one"}`},
			{"PATCH", pods + "/one", patch, `{"metadata":{"labels":{"a":"b"}}}`, `"name":"one","namespace":"x@b"`},
			{"DELETE", pods + "/one", nil, "", `"details":{"name":"one"}`},
		} {
			if got := describeResponse(t, h.Do(tt.method, prefix+tt.path, tt.header, tt.body)); !strings.Contains(got,
				tt.want) {
				t.Errorf("%s %s%s: %s\nwant %s", tt.method, prefix, tt.path, got, tt.want)
			}
		}
		resp := h.Do("GET", prefix+pods+"?watch=1&resourceVersion=20", nil, "")
		if e := nextEvent(t, bufio.NewReader(resp.Body)); e.Object.Metadata.Name != "one" {
			t.Errorf("%s: an event has the name %q", prefix, e.Object.Metadata.Name)
		}
		_ = resp.Body.Close()
	}
}

// TestFleetNamespaceSelectsCluster fails if namespace@cluster selects another cluster.
func TestFleetNamespaceSelectsCluster(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, withPod("one"), withPod("one"))
	for path, want := range map[string]string{
		"/api/v1/namespaces/x@b/pods":                                                     "one@b",
		"/api/v1/namespaces/x@b/pods?clusters=a,b":                                        "one@b",
		"/api/v1/namespaces/x/pods":                                                       "one@a one@b",
		"/api/v1/pods?fieldSelector=metadata.namespace%3Dx%40b":                           "one@b@b",
		"/api/v1/namespaces/x/pods?labelSelector=kubernetes.io/service-name%3Dweb%40b":    "one@b@b",
		"/api/v1/namespaces/x@b/pods?labelSelector=kubernetes.io/service-name%3Dweb%40b":  "one@b@b",
		"/api/v1/namespaces/x/pods?labelSelector=a+in+(web@b)&fieldSelector=spec.x!%3Da":  "one@b@b",
		"/api/v1/namespaces/x@b/pods?labelSelector=clusterpass.io/cluster+in+(a,b),a%3Db": "one@b",
	} {
		if l, _ := h.list("/fleet"+path, nil); l.names() != want {
			t.Errorf("%s: %q, want %q", path, l.names(), want)
		}
	}
	for _, m := range members {
		for _, r := range m.TakeRequests() {
			if strings.ContainsAny(r.URI, "@") || strings.Contains(r.URI, "%40") {
				t.Errorf("a member receives %s", r.URI)
			}
		}
	}
	if got := describeResponse(t, h.Do("PUT", "/fleet/api/v1/namespaces/x@b/pods/one",
		http.Header{"Content-Type": {"application/json"}},
		`{"metadata":{"name":"one","namespace":"x@b"}}`)); !strings.Contains(got, `"name":"one"`) {
		t.Error(got)
	}
	// Only the names in the path lose their cluster, and not the path behind proxy.
	h.EditCluster("b", func(c *v1alpha1.Cluster) { c.Spec.ServiceProxy = []string{"pods/x/x"} })
	_ = describeResponse(t, h.Do("GET", "/fleet/api/v1/namespaces/x@b/pods/x@b/proxy/x@b", nil, ""))
	var received []string
	for _, r := range members[1].TakeRequests() {
		received = append(received, r.Method+" "+r.URI+" "+r.Body)
	}
	if got := strings.Join(received, "\n"); got != `PUT /api/v1/namespaces/x/pods/one {"metadata":{"name":"one",`+
		`"namespace":"x"}}`+"\nGET /api/v1/namespaces/x/pods/x/proxy/x@b " {
		t.Errorf("b receives\n%s", got)
	}
	for path, want := range map[string]string{
		"/api/v1/namespaces/x@b/pods/one@a": `the path names cluster "a",` +
			` but cluster "b" is named by its namespace`,
		"/api/v1/namespaces/x@b/pods?clusters=a": `the request names cluster "b"`,
		"/api/v1/namespaces/x@b/pods?fieldSelector=metadata.name%3Done%40a": `names cluster "b", ` +
			`its field selector "a"`,
		"/api/v1/namespaces/x/pods?labelSelector=a%3Dweb%40b,b%3Dweb%40a":                `names clusters "b" and "a"`,
		"/api/v1/namespaces/x/pods?labelSelector=a!%3Dweb%40b":                           "would exclude",
		"/api/v1/namespaces/x/pods?labelSelector=clusterpass.io/cluster%3Da,b%3Dweb%40b": `names clusters "b" and ["a"]`,
		"/api/v1/namespaces/x@b/pods?labelSelector=clusterpass.io/cluster%3Da":           `the request names cluster "b"`,
		"/api/v1/namespaces/@b/pods":                                                     `"" is no object's name`,
	} {
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet"+path, nil, ""), 400, "bad_request", want)
	}
	for path, want := range map[string]string{"/api/v1/namespaces/x@nope/pods": `no cluster "nope"`,
		"/api/v1/namespaces/x@nope/pods/one":      `no cluster "nope"`,
		"/api/v1/pods?labelSelector=a%3Db%40nope": `no cluster "nope"`} {
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet"+path, nil, ""), 404, "unknown_cluster", want)
	}
	for _, m := range members {
		if n := len(m.TakeRequests()); n > 0 {
			t.Errorf("a member receives %d of the refused requests", n)
		}
	}
}

// TestFleetNamesWithAt fails if an object whose own name looks like name@cluster cannot be reached by its listed name.
func TestFleetNamesWithAt(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, withPod("one@b"), withPod("two@example.com"))
	l, _ := h.list("/fleet/api/v1/pods", nil)
	if got := l.names(); got != "one@b@a@a two@example.com@b" {
		t.Fatalf("the names are %s", got)
	}
	for path, want := range map[string]string{"one@b@a": `"name":"one@b@a"`,
		"two@example.com": `"name":"two@example.com"`, "two@example.com@b": `"name":"two@example.com@b"`} {
		if got := describeResponse(t, h.Do("GET", "/fleet/api/v1/namespaces/x/pods/"+path, nil, "")); !strings.Contains(got,
			want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, m := range members {
		m.TakeRequests()
	}
	_ = describeResponse(t, h.Do("GET", "/fleet/api/v1/namespaces/x/pods/one@b", nil, "")) // one in b
	if got := members[1].TakeRequests(); len(members[0].TakeRequests()) > 0 || len(got) != 1 ||
		got[0].URI != "/api/v1/namespaces/x/pods/one" {
		t.Errorf("b receives %+v", got)
	}
	_ = describeResponse(t, h.Do("PUT", "/fleet/api/v1/namespaces/x/pods/one@b@a",
		http.Header{"Content-Type": {"application/json"}}, `{"metadata":{"name":"one@b@a"}}`))
	if got := members[0].TakeRequests(); len(got) != 1 || got[0].URI != "/api/v1/namespaces/x/pods/one@b" ||
		got[0].Body != `{"metadata":{"name":"one@b"}}` {
		t.Errorf("a receives %+v", got)
	}
}

// TestFleetProxyFindsCluster fails if proxy subresources with a scheme or a port do not find the object's cluster.
func TestFleetProxyFindsCluster(t *testing.T) {
	without := func(w http.ResponseWriter, r *http.Request) {
		respond(404,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"no","code":404}`)(w, r)
	}
	with := func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/services/web") && !strings.HasSuffix(r.URL.Path, "/proxy/a:b@c") {
			without(w, r)
			return
		}
		respond(200, `{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"}}`)(w, r)
	}
	h, members := newFleet(t, gatewaytest.Options{}, without, with)
	h.AddRegistry("services", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Service"}]}`)
	h.EditCluster("b", func(c *v1alpha1.Cluster) { c.Spec.ServiceProxy = []string{"services/x/web"} })
	for name, want := range map[string]string{"web": "web", "web:80": "web:80", "https:web:443": "https:web:443",
		"web@b:80": "web:80", "web:80@b": "web:80", "https:web@b:": "https:web:"} {
		if got := describeResponse(t,
			h.Do("GET", "/fleet/api/v1/namespaces/x/services/"+name+"/proxy/a:b@c", nil, "")); !strings.HasPrefix(got, "200 ") {
			t.Errorf("%s: %s", name, got)
		}
		if received := members[1].TakeRequests(); len(received) == 0 ||
			received[len(received)-1].URI != "/api/v1/namespaces/x/services/"+want+"/proxy/a:b@c" {
			t.Errorf("%s: b receives %+v", name, received)
		}
	}
}

// TestFleetDescribes fails if kubectl describe shows events or pods of another cluster's object.
func TestFleetDescribes(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, withPod("one"), withPod("one"))
	for _, tt := range []struct{ command, path, want string }{
		{"kubectl describe", "/fleet/api/v1/namespaces/x/pods/one@b", `"name":"one@b","namespace":"x@b"`},
		{"kubectl describe", "/fleet/@/api/v1/namespaces/x/pods/one@b", `"name":"one@b","namespace":"x@b"`},
		{"kubectl get", "/fleet/@/api/v1/namespaces/x/pods/one@b", `"namespace":"x"`},
		{"kubectl describe", "/fleet/api/v1/namespaces/x@b/pods", `"claimName":"c@b"`},
		{"kubectl describe", "/fleet/api/v1/namespaces/x/pods", `"claimName":"c"`},
		{"kubectl get", "/fleet/@/api/v1/namespaces/x/pods", `"claimName":"c"`},
		{"kubectl get", "/fleet/api/v1/namespaces/x@b/pods", `"name":"one","namespace":"x@b"`},
		{"kubectl get", "/fleet/api/v1/namespaces/x@b/pods/one", `"name":"one","namespace":"x@b"`},
		{"kubectl get", "/fleet/api/v1/namespaces/x@b/pods/one@b", `"name":"one@b","namespace":"x@b"`},
		{"kubectl describe", "/fleet/api/v1/namespaces/x@b/pods/one", `"name":"one@b","namespace":"x@b"`},
	} {
		if got := describeResponse(t,
			h.Do("GET", tt.path, http.Header{"Kubectl-Command": {tt.command}}, "")); !strings.Contains(got, tt.want) {
			t.Errorf("%s, %s: %s\nwant %s", tt.command, tt.path, got, tt.want)
		}
	}
}
