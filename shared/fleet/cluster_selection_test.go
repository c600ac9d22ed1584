package fleet_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetSelectedControlPlane fails if a request that selects other clusters reaches the control-plane cluster.
func TestFleetSelectedControlPlane(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{ControlPlane: "cp"})
	members := map[string]*clustertest.Member{"a": clustertest.NewMember(t, respond(200, podList("10"))),
		"cp": clustertest.NewMember(t, respond(200, podList("10", "x/one")))}
	for name, env := range map[string]string{"a": "dev", "cp": "prod"} {
		h.AddCluster(name, members[name].Kubeconfig(`{token: t}`))
		h.setLabels(name, map[string]string{"env": env})
	}
	h.AddRegistry("pods", allPods)
	for _, method := range []string{"DELETE", "GET"} {
		for _, query := range []string{"?clusterSelector=env%3Ddev", "?clusterSelector=env%3Dprod", "?clusters=a"} {
			gatewaytest.WantStatus(t, h.Do(method, "/fleet/api/v1/namespaces/x/secrets"+query, nil, ""), 404, "not_global",
				"no ResourceRegistry")
			gatewaytest.WantStatus(t, h.Do(method, "/fleet/api/v1/namespaces/x/secrets/one"+query, nil, ""), 404, "not_global",
				"no ResourceRegistry")
		}
	}
	for name, m := range members {
		for _, got := range m.TakeRequests() {
			if got.URI != "/api/v1" { // discovery is allowed
				t.Errorf("cluster %s receives %s %s", name, got.Method, got.URI)
			}
		}
	}
	// Without a selection of clusters, the control-plane cluster serves the request.
	if resp := h.Do("GET", "/fleet/api/v1/namespaces/x/secrets", nil, ""); resp.StatusCode != http.StatusOK ||
		len(members["cp"].Requests()) == 0 {
		t.Errorf("a kind that no registry covers: %s", resp.Status)
	}
}

// TestFleetExplainsUncoveredNamespace: the 404 for a namespace must not mention a namespace of that namespace.
func TestFleetExplainsUncoveredNamespace(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/one")))
	for path, want := range map[string]string{
		"/namespaces/x":         "namespaces of v1 are not global",
		"/namespaces/x/secrets": `secrets of v1 in namespace "x" are not global`,
	} {
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1"+path, nil, ""), 404, "not_global", want)
	}
}

// TestFleetPagesWithoutVersion fails if a client misses objects, without an error, of a cluster that omits its version.
func TestFleetPagesWithoutVersion(t *testing.T) {
	const before, after = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`,
		`{"kind":"PodList","apiVersion":"v1","items":[],"metadata":{}}`
	good := respond(200, podList("10", "x/one"))
	withoutVersion := func(list string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("resourceVersionMatch") == "" {
				good(w, r)
				return
			}
			respond(200, list)(w, r)
		}
	}
	first := func(h *fixture) string {
		t.Helper()
		l, _ := h.list("/fleet/api/v1/pods?limit=1", nil)
		if l.names() != "one@a" || l.Metadata.Continue == "" {
			t.Fatalf("the first page: %q, %q", l.names(), l.Metadata.Continue)
		}
		return "/fleet/api/v1/pods?continue=" + l.Metadata.Continue
	}
	h, _ := newFleet(t, gatewaytest.Options{}, good, withoutVersion(before), good, good, good, good)
	next := first(h)
	for _, limit := range []string{"", "&limit=1", "&limit=100"} {
		gatewaytest.WantStatus(t, h.Do("GET", next+limit, nil, ""), 502, "members_failed",
			`cluster "b" lists without a resourceVersion`)
	}
	h, _ = newFleet(t, gatewaytest.Options{}, good, withoutVersion(after), good, good, good, good)
	next = first(h)
	for _, limit := range []string{"", "&limit=1", "&limit=100"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", h.URL+next+limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.HTTPClient.Do(req)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("%s: an incomplete list is complete for the client: %s", limit, body)
		}
	}
	h, _ = newFleet(t, gatewaytest.Options{}, good, good, good, good, good, good)
	if l, _ := h.list(first(h), nil); l.names() != "one@b one@c one@d one@e one@f" || l.Metadata.Continue != "" {
		t.Errorf("the rest in one page: %q, %q", l.names(), l.Metadata.Continue)
	}
	// A cluster without a version is left out of pages. If no cluster has one, the first page is the whole list.
	versionless := respond(200, strings.Replace(podList("10", "x/one", "x/two"), `"resourceVersion":"10"`, "", 1))
	h, _ = newFleet(t, gatewaytest.Options{}, good, versionless, good)
	l, resp := h.list("/fleet/api/v1/pods?limit=5", nil)
	if got := strings.Join(resp.Header["Warning"], "\n"); l.names() != "one@a one@c" ||
		!strings.Contains(got, `cluster \"b\" lists without a resourceVersion`) {
		t.Errorf("one has no version: %q, warnings %s", l.names(), got)
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/pods?limit=5&strict=true", nil, ""), 502, "members_failed",
		`cluster "b" lists without a resourceVersion`)
	if l, resp := h.list("/fleet/api/v1/pods", nil); l.names() != "one@a one@b two@b one@c" ||
		resp.Header["Warning"] != nil {
		t.Errorf("without pages: %q, %q", l.names(), resp.Header["Warning"])
	}
	h, _ = newFleet(t, gatewaytest.Options{}, versionless, versionless)
	if l, resp := h.list("/fleet/api/v1/pods?limit=1", nil); l.names() != "one@a two@a one@b two@b" ||
		resp.Header["Warning"] != nil {
		t.Errorf("none has a version: %q, %q", l.names(), resp.Header["Warning"])
	}
}

// withPodsAndNodes returns the handler of a member with pods and nodes. It passes other requests to h.
func withPodsAndNodes(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1" {
			respond(200, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
				{"name":"pods","kind":"Pod","namespaced":true},{"name":"nodes","kind":"Node"},
				{"name":"namespaces","kind":"Namespace"}]}`)(w, r)
			return
		}
		h(w, r)
	}
}

// TestFleetNamespacedRegistryCoversNoNodes fails if a registry of one namespace shows cluster-scoped objects.
func TestFleetNamespacedRegistryCoversNoNodes(t *testing.T) {
	const everythingOfShop = `{"targetCluster":{"clusterNames":["a","b"]},"resourceSelectors":[{"apiVersion":"v1",` +
		`"kind":"*","namespace":"shop"}]}`
	calls := []struct{ method, path string }{
		{"GET", "/nodes/n"}, {"GET", "/nodes/n?watch=1"}, {"GET", "/watch/nodes/n"}, {"GET", "/watch/nodes"},
		{"GET", "/nodes"}, {"GET", "/nodes?watch=1"},
		{"PATCH", "/nodes/n"}, {"PUT", "/nodes/n"}, {"DELETE", "/nodes/n"}, {"DELETE", "/nodes"}, {"POST", "/nodes"},
		{"GET", "/namespaces"}, {"DELETE", "/namespaces"}, {"DELETE", "/pods"}, {"POST", "/pods"},
	}
	write := http.Header{"Content-Type": {"application/json"}}
	untouched := func(members ...*clustertest.Member) {
		t.Helper()
		for _, m := range members {
			for _, got := range m.TakeRequests() {
				if got.URI != "/api/v1" {
					t.Errorf("a member receives %s %s", got.Method, got.URI)
				}
			}
		}
	}
	pods := withPodsAndNodes(respond(200, podList("10", "shop/one")))
	members := []*clustertest.Member{clustertest.NewMember(t, pods), clustertest.NewMember(t, pods),
		clustertest.NewMember(t, withPodsAndNodes(respond(200, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`)))}
	h := newGateway(t, gatewaytest.Options{BareWrites: fleet.BareAll})
	h.AddCluster("a", members[0].Kubeconfig(`{token: t}`))
	h.AddCluster("b", members[1].Kubeconfig(`{token: t}`))
	h.AddRegistry("shop", everythingOfShop)
	for _, c := range calls {
		gatewaytest.WantStatus(t, h.Do(c.method, "/fleet/api/v1"+c.path, write, ""), 404, "not_global",
			"their kind, without a namespace, in spec.resourceSelectors")
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		for _, path := range []string{"n@a", "n/proxy/"} {
			gatewaytest.WantStatus(t, h.Do(method, "/fleet/api/v1/nodes/"+path, write, ""), 404, "not_global",
				"no ResourceRegistry")
		}
	}
	untouched(members[0], members[1])
	// The members' discovery decides about an unknown kind.
	for _, path := range []string{"/pods", "/namespaces/shop/pods", "/namespaces/shop/nothing", "/nothing"} {
		if l, _ := h.list("/fleet/api/v1"+path, nil); l.names() != "one@a one@b" {
			t.Errorf("%s: %q", path, l.names())
		}
		for _, m := range members[:2] {
			for _, got := range m.TakeRequests() {
				if got.URI != "/api/v1" && !strings.HasPrefix(got.URI, "/api/v1/namespaces/shop/") {
					t.Errorf("%s: a member receives %s", path, got.URI)
				}
			}
		}
	}
	// If another registry covers the nodes of a cluster, only that cluster is called.
	h.AddCluster("c", members[2].Kubeconfig(`{token: t}`))
	h.AddRegistry("all",
		`{"targetCluster":{"clusterNames":["c"]},"resourceSelectors":[{"apiVersion":"v1","kind":"Node"}]}`)
	for _, method := range []string{"GET", "DELETE"} {
		if resp := h.Do(method, "/fleet/api/v1/nodes/n", nil, ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s of a node that a registry covers: %s", method, resp.Status)
		}
	}
	untouched(members[0], members[1])
	// A control-plane cluster serves all of these requests.
	h = newGateway(t, gatewaytest.Options{ControlPlane: "cp"})
	control := clustertest.NewMember(t,
		withPodsAndNodes(respond(200, `{"kind":"Status","apiVersion":"v1","status":"Success","code":200}`)))
	h.AddCluster("a", members[0].Kubeconfig(`{token: t}`))
	h.AddCluster("b", members[1].Kubeconfig(`{token: t}`))
	h.AddCluster("cp", control.Kubeconfig(`{token: t}`))
	h.AddRegistry("shop", everythingOfShop)
	for _, c := range calls {
		if resp := h.Do(c.method, "/fleet/api/v1"+c.path, write, ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s", c.method, c.path, resp.Status)
		}
	}
	untouched(members[0], members[1])
}
