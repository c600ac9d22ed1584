package fleet_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// withKinds adds discovery of resources of x.io/v1 to a member, each as NAME=KIND or NAME=KIND/Namespaced.
func withKinds(resources string, h http.HandlerFunc) http.HandlerFunc {
	var old, aggregated []string
	for one := range strings.FieldsSeq(resources) {
		name, kind, _ := strings.Cut(one, "=")
		kind, scope, namespaced := strings.Cut(kind, "/")
		if !namespaced {
			scope = "Cluster"
		}
		old = append(old, fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":%v,"verbs":["get"]}`, name, kind, namespaced))
		aggregated = append(aggregated, fmt.Sprintf(`{"resource":%q,"responseKind":{"group":"x.io","version":"v1",`+
			`"kind":%q},"scope":%q,"verbs":["get"]}`, name, kind, scope))
	}
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/x.io/v1":
			respond(200, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"x.io/v1","resources":[`+strings.Join(old,
				",")+`]}`)(w, r)
		case "/api":
			respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)(w, r)
		case "/apis":
			respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2",`+
				`"items":[{"metadata":{"name":"x.io"},"versions":[{"version":"v1","resources":[`+
				strings.Join(aggregated, ",")+`]}]}]}`)(w, r)
		default:
			h(w, r)
		}
	}
}

// answerInOrder returns the handlers of two members or more. The first one answers discovery before the others.
func answerInOrder(first http.HandlerFunc, others ...http.HandlerFunc) (http.HandlerFunc, []http.HandlerFunc) {
	answered := make(chan struct{})
	var once sync.Once
	for i, h := range others {
		others[i] = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis/x.io/v1" {
				select {
				case <-answered:
				case <-r.Context().Done():
				}
			}
			h(w, r)
		}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		first(w, r)
		if r.URL.Path == "/apis/x.io/v1" {
			_ = http.NewResponseController(w).Flush()
			// After the pause the gateway has very probably read this response.
			once.Do(func() { time.AfterFunc(50*time.Millisecond, func() { close(answered) }) })
		}
	}, others
}

func withGateway(name string) http.HandlerFunc {
	object := `{"kind":"Gateway","apiVersion":"x.io/v1","metadata":{"name":"` + name +
		`","namespace":"ns","resourceVersion":"7"}}`
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			respond(201, object)(w, r)
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "s"):
			respond(200,
				`{"kind":"GatewayList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"5"},"items":[`+object+`]}`)(w, r)
		case strings.HasSuffix(r.URL.Path, "/"+name):
			respond(200, object)(w, r)
		default:
			refuse(404, "NotFound", "none")(w, r)
		}
	}
}

// requestsExceptDiscovery returns the requests that a member received since the last call, except those for discovery.
func requestsExceptDiscovery(m *clustertest.Member) string {
	var out []string
	for _, r := range m.TakeRequests() {
		if r.URI != "/apis/x.io/v1" && r.URI != "/apis" && r.URI != "/api" {
			out = append(out, r.Method+" "+r.URI)
		}
	}
	return strings.Join(out, ", ")
}

const gatewaysOfAll = `{"targetCluster":{"clusterNames":["a","b","c"]},` +
	`"resourceSelectors":[{"apiVersion":"x.io/v1","kind":"Gateway"},{"apiVersion":"v1","kind":"ConfigMap"}]}`

// liarFleet is a fleet with a member whose discovery lies, an honest one, and optionally a control-plane cluster.
type liarFleet struct {
	*fixture
	t              *testing.T
	evil, good, cp *clustertest.Member
	hasControl     bool
}

const (
	newGatewayBody = `{"kind":"Gateway","apiVersion":"x.io/v1","metadata":{"name":"new","namespace":"ns"}}`
	newVaultBody   = `{"kind":"Vault","apiVersion":"x.io/v1","metadata":{"name":"new","namespace":"ns"},"secret":"s"}`
)

var jsonBody = http.Header{"Content-Type": {"application/json"}}

// newLiarFleet returns a fleet whose first member reports the kinds of lie.
func newLiarFleet(t *testing.T, lie string, hasControl bool) *liarFleet {
	t.Helper()
	const honest = "gateways=Gateway/Namespaced vaults=Vault/Namespaced domains=Domain"
	opts := gatewaytest.Options{BareWrites: fleet.BareAll}
	if hasControl {
		opts.ControlPlane = "cp"
	}
	first, others := answerInOrder(withKinds(lie, withGateway("of-a")), withKinds(honest, withGateway("of-b")),
		withKinds(honest, withGateway("of-cp")))
	f := &liarFleet{
		fixture: newGateway(t, opts), t: t, hasControl: hasControl, evil: clustertest.NewMember(t, first),
		good: clustertest.NewMember(t, others[0]), cp: clustertest.NewMember(t, others[1]),
	}
	f.AddCluster("a", f.evil.Kubeconfig(`{token: t}`))
	f.AddCluster("b", f.good.Kubeconfig(`{token: t}`))
	if hasControl {
		f.AddCluster("cp", f.cp.Kubeconfig(`{token: t}`))
	}
	f.AddRegistry("gateways", gatewaysOfAll)
	return f
}

func (f *liarFleet) wantHonestObjects() {
	f.t.Helper()
	for method, path := range map[string]string{
		"GET": "/gateways", "DELETE": "/gateways/of-b", "PATCH": "/gateways/of-b",
	} {
		text, resp := f.DoText(method, "/fleet/apis/x.io/v1/namespaces/ns"+path, jsonBody, "")
		if resp.StatusCode != 200 || !strings.Contains(text, "of-b") {
			f.t.Errorf("%s %s: %s %s", method, path, resp.Status, text)
		}
	}
	got := requestsExceptDiscovery(f.good)
	for _, want := range []string{"GET /apis/x.io/v1/namespaces/ns/gateways", "DELETE ", "PATCH "} {
		if !strings.Contains(got, want) {
			f.t.Errorf("the honest member received %s, want %s", got, want)
		}
	}
}

func (f *liarFleet) wantCreatedByHonestMember() {
	f.t.Helper()
	f.evil.TakeRequests()
	text, resp := f.DoText("POST", "/fleet/apis/x.io/v1/namespaces/ns/gateways", jsonBody, newGatewayBody)
	if resp.StatusCode != 201 || requestsExceptDiscovery(f.good) == "" || requestsExceptDiscovery(f.evil) != "" {
		f.t.Errorf("create: %s %s", resp.Status, text)
	}
}

// wantNotGlobal fails if a request reaches another cluster than the control-plane cluster.
func (f *liarFleet) wantNotGlobal(method, path, body string) {
	f.t.Helper()
	f.cp.TakeRequests()
	f.evil.TakeRequests()
	text, resp := f.DoText(method, "/fleet"+path, jsonBody, body)
	fromLiar, fromControl := requestsExceptDiscovery(f.evil), requestsExceptDiscovery(f.cp)
	switch {
	case f.hasControl:
		if fromLiar != "" || fromControl == "" || resp.StatusCode >= 300 && method != "DELETE" {
			f.t.Errorf("%s %s: %s %s, and the liar received %s", method, path, resp.Status, text, fromLiar)
		}
	case strings.HasSuffix(path, "/secrets"):
		if fromLiar != "" || resp.StatusCode != 404 {
			f.t.Errorf("%s %s: %s %s, and the liar received %s", method, path, resp.Status, text, fromLiar)
		}
	}
	if got := requestsExceptDiscovery(f.good); got != "" {
		f.t.Errorf("%s %s: the honest member received %s", method, path, got)
	}
}

// TestFleetLiar fails if a member whose discovery lies moves requests away from other clusters, or to itself.
func TestFleetLiar(t *testing.T) {
	for name, lie := range map[string]string{
		"another kind":        "gateways=Nothing/Namespaced vaults=Gateway/Namespaced secrets=ConfigMap/Namespaced",
		"no kind":             "vaults=Gateway/Namespaced",
		"another scope":       "gateways=Gateway vaults=Gateway",
		"all are of the kind": "gateways=Gateway/Namespaced vaults=Gateway/Namespaced domains=Gateway/Namespaced",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, hasControl := range []bool{false, true} {
				f := newLiarFleet(t, lie, hasControl)
				f.wantHonestObjects()
				if strings.HasPrefix(lie, "gateways=Nothing") {
					f.wantCreatedByHonestMember()
				}
				f.wantNotGlobal("POST", "/apis/x.io/v1/namespaces/ns/vaults", newVaultBody)
				f.wantNotGlobal("GET", "/apis/x.io/v1/namespaces/ns/vaults", "")
				f.wantNotGlobal("DELETE", "/apis/x.io/v1/namespaces/ns/vaults", "")
				f.wantNotGlobal("GET", "/apis/x.io/v1/domains", "")
				f.wantNotGlobal("POST", "/api/v1/namespaces/ns/secrets", newVaultBody)
				f.wantNotGlobal("GET", "/api/v1/namespaces/ns/secrets", "")
			}
		})
	}
}

// TestFleetScopeLiar fails if a member that lies about a kind's scope changes the calls of other clusters.
func TestFleetScopeLiar(t *testing.T) {
	const honest = "gateways=Gateway/Namespaced domains=Domain"
	h := newGateway(t, gatewaytest.Options{ControlPlane: "cp"})
	first, others := answerInOrder(withKinds("gateways=Gateway domains=Domain/Namespaced", withGateway("of-a")),
		withKinds(honest, withGateway("of-b")), withKinds(honest, withGateway("of-cp")))
	evil, good, cp := clustertest.NewMember(t, first), clustertest.NewMember(t, others[0]),
		clustertest.NewMember(t, others[1])
	h.AddCluster("a", evil.Kubeconfig(`{token: t}`))
	h.AddCluster("b", good.Kubeconfig(`{token: t}`))
	h.AddCluster("cp", cp.Kubeconfig(`{token: t}`))
	h.AddRegistry("ns", `{"targetCluster":{"clusterNames":["a","b"]},"resourceSelectors":[{"apiVersion":"x.io/v1",`+
		`"kind":"*","namespace":"ns"}]}`)
	if l, _ := h.list("/fleet/apis/x.io/v1/gateways", nil); l.names() != "of-b@b" ||
		requestsExceptDiscovery(evil) != "" || requestsExceptDiscovery(cp) != "" {
		t.Errorf("a namespaced kind: %q", l.names())
	}
	good.TakeRequests()
	if l, _ := h.list("/fleet/apis/x.io/v1/domains", nil); l.names() == "" || requestsExceptDiscovery(evil) != "" ||
		requestsExceptDiscovery(good) != "" || requestsExceptDiscovery(cp) == "" {
		t.Errorf("a cluster-scoped kind: %q", l.names())
	}
}

// TestFleetFailedDiscovery fails if requests reach a resource that is not known, or if there is no warning.
func TestFleetFailedDiscovery(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	const honest = "gateways=Gateway/Namespaced vaults=Vault/Namespaced"
	var down, controlDown atomic.Bool
	failing := func(when *atomic.Bool, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if when.Load() && r.URL.Path == "/apis/x.io/v1" {
				refuse(503, "ServiceUnavailable", "it starts")(w, r)
				return
			}
			h(w, r)
		}
	}
	down.Store(true)
	controlDown.Store(true)
	h := newGateway(t, gatewaytest.Options{ControlPlane: "cp"})
	a := clustertest.NewMember(t, withKinds("gateways=Gateway/Namespaced vaults=Gateway/Namespaced", withGateway("of-a")))
	b, cp := clustertest.NewMember(t, failing(&down, withKinds(honest, withGateway("of-b")))),
		clustertest.NewMember(t, failing(&controlDown, withKinds(honest, withGateway("of-cp"))))
	h.AddCluster("a", a.Kubeconfig(`{token: t}`))
	h.AddCluster("b", b.Kubeconfig(`{token: t}`))
	h.AddCluster("cp", cp.Kubeconfig(`{token: t}`))
	h.AddRegistry("gateways", gatewaysOfAll)
	const in = "/fleet/apis/x.io/v1/namespaces/ns/"
	const left = `cluster \"b\" cannot describe its gateways of x.io/v1 now (left out)`
	l, resp := h.list(in+"gateways", nil)
	if got := strings.Join(resp.Header["Warning"], "\n"); l.names() != "of-a@a" || !strings.Contains(got, left) {
		t.Errorf("%q, warnings %s", l.names(), got)
	}
	gatewaytest.WantStatus(t, h.Do("GET", in+"gateways?strict", nil, ""), 502, "members_failed",
		`cluster "b" cannot describe its`)
	gatewaytest.WantStatus(t, h.Do("GET", in+"gateways/other", nil, ""), 502, "members_failed",
		`cluster "b" cannot describe its`)
	gatewaytest.WantStatus(t, h.Do("GET", in+"gateways?clusters=b", nil, ""), 502, "members_failed", "cannot determine")
	for _, method := range []string{"POST", "DELETE", "PATCH"} {
		gatewaytest.WantStatus(t, h.Do(method, in+"vaults", nil, "{}"), 502, "members_failed",
			`whether a ResourceRegistry covers vaults of x.io/v1: cluster "b" cannot describe`)
	}
	if got := requestsExceptDiscovery(b) + requestsExceptDiscovery(cp); got != "" {
		t.Errorf("others receive %s", got)
	}
	watch := h.Do("GET", in+"gateways?watch=1", nil, "")
	if got := strings.Join(watch.Header["Warning"], "\n"); watch.StatusCode != 200 ||
		!strings.Contains(got, `cluster \"b\" cannot describe its`) {
		t.Errorf("a watch: %s, warnings %s", watch.Status, got)
	}
	controlDown.Store(false)
	if resp := h.Do("DELETE", in+"vaults/of-cp", nil, ""); resp.StatusCode != 200 ||
		!strings.Contains(requestsExceptDiscovery(cp), "DELETE") {
		t.Errorf("the control-plane cluster's: %s", resp.Status)
	}
	down.Store(false) // so that the open watch includes it
	seen := ""
	for buf := make([]byte, 4<<10); !strings.Contains(seen, "of-b"); {
		n, err := watch.Body.Read(buf)
		if seen += string(buf[:n]); err != nil {
			t.Fatalf("the watch ends after %s: %v", seen, err)
		}
	}
	_ = watch.Body.Close()
	if l, _ := h.list(in+"gateways", nil); l.names() != "of-a@a of-b@b" {
		t.Errorf("after discovery recovered: %q", l.names())
	}
}

// TestFleetDiscoveryLiar fails if one member overrides the discovery of the majority.
func TestFleetDiscoveryLiar(t *testing.T) {
	discovers := func(core, groups string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			items := core
			if r.URL.Path == "/apis" {
				items = groups
			}
			respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[`+items+`]}`)(w, r)
		}
	}
	resource := func(kind, scope string) string {
		return fmt.Sprintf(`{"resource":"gateways","responseKind":{"group":"x.io","version":"v1","kind":%q},"scope":%q,`+
			`"verbs":["get"]}`, kind, scope)
	}
	honest := discovers("", `{"metadata":{"name":"x.io"},"versions":[{"version":"v1","resources":[`+
		resource("Gateway", "Namespaced")+`]}]}`)
	evil := resource("Evil", "Cluster")
	lie := `{"metadata":{"name":"evil.io"},"versions":[{"version":"v1","resources":[` + evil + `]}]},` +
		`{"metadata":{"name":"x.io"},"versions":[{"version":"v9","resources":[` + evil + `]},` +
		`{"version":"v1","resources":[` + evil + `]}]}`
	for name, handlers := range map[string][]http.HandlerFunc{
		"the first member":                      {discovers("", lie), honest, honest},
		"the last member, in /api and in /apis": {honest, honest, discovers(lie, lie)},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, handlers...)
			h.AddRegistry("all", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"*","kind":"*"}]}`)
			text, _ := h.DoText("GET", "/fleet/apis", nil, "")
			x, evil := strings.Index(text, `"name":"x.io"`), strings.Index(text, `"name":"evil.io"`)
			if x < 0 || evil < x || !strings.Contains(text, `"preferredVersion":{"groupVersion":"x.io/v1"`) {
				t.Errorf("the groups are %s", text)
			}
			text, _ = h.DoText("GET", "/fleet/apis/x.io/v1", nil, "")
			if !strings.Contains(text, `"namespaced":true`) || !strings.Contains(text, `"kind":"Gateway"`) ||
				strings.Contains(text, "Evil") {
				t.Errorf("the resources are %s", text)
			}
		})
	}
}

// TestFleetOpenAPILiar fails if the first registered member overrides the schemas of the majority.
func TestFleetOpenAPILiar(t *testing.T) {
	var asked atomic.Int32
	h, _ := newFleet(t, gatewaytest.Options{}, withSchema("0", `"Pod":{"type":"evil"},"More":{}`, &asked),
		withSchema("1", `"Pod":{"type":"good"}`, &asked), withSchema("1", `"Pod":{"type":"good"}`, &asked))
	if got, resp := h.DoText("GET", "/fleet/openapi/v3/api/v1", nil,
		""); got != `{"components":{"schemas":{"More":{},"Pod":{"type":"good"}}}}` {
		t.Errorf("%s %s", resp.Status, got)
	}
}

// TestFleetNamespaceDiscovery fails if a registry of one namespace shows cluster-scoped kinds, or hides others.
func TestFleetNamespaceDiscovery(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		items := ""
		if r.URL.Path == "/api" {
			items = `{"metadata":{},"versions":[{"version":"v1","resources":[
				{"resource":"nodes","responseKind":{"group":"","version":"v1","kind":"Node"},"scope":"Cluster",
					"verbs":["get"]},
				{"resource":"namespaces","responseKind":{"group":"","version":"v1","kind":"Namespace"},"scope":"Cluster",
					"verbs":["get"]},
				{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced",
					"verbs":["get"]}]}]}`
		}
		respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[`+items+`]}`)(w, r)
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("a", m.Kubeconfig(`{token: t}`))
	h.AddRegistry("shop", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"*","namespace":"shop"}]}`)
	for path, header := range map[string]http.Header{"/fleet/api/v1": nil,
		"/fleet/api": {"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}} {
		text, resp := h.DoText("GET", path, header, "")
		if resp.StatusCode != 200 || !strings.Contains(text, `"pods"`) || !strings.Contains(text, `"namespaces"`) ||
			strings.Contains(text, `"nodes"`) {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
}

// TestFleetMajorityDecidesForm fails if one member changes the form of a list for the majority.
func TestFleetMajorityDecidesForm(t *testing.T) {
	good := respond(200, podList("10", "x/one"))
	for name, evil := range map[string]string{
		"a table": `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},` +
			`"columnDefinitions":[{"name":"Name"}],"rows":[]}`,
		"another kind": `{"kind":"EvilList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`,
	} {
		h, _ := newFleet(t, gatewaytest.Options{}, respond(200, evil), good, good)
		l, resp := h.list("/fleet/api/v1/pods", nil)
		if got := strings.Join(resp.Header["Warning"], "\n"); l.Kind != "PodList" || l.names() != "one@b one@c" ||
			!strings.Contains(got, `cluster \"a\" returns this kind in another format`) {
			t.Errorf("%s: a %s of %q, warnings %s", name, l.Kind, l.names(), got)
		}
	}
	late := `{"apiVersion":"v1","items":[],"kind":"%s","metadata":{"resourceVersion":"5"}}`
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, fmt.Sprintf(late, "EvilList")),
		respond(200, fmt.Sprintf(late, "PodList")), respond(200, fmt.Sprintf(late, "PodList")))
	if l, _ := h.list("/fleet/api/v1/pods", nil); l.Kind != "PodList" {
		t.Errorf("a %s", l.Kind)
	}
}
