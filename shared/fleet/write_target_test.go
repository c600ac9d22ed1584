package fleet_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

func forbid(name, kind string) http.HandlerFunc {
	return respond(403, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"%[2]s %[1]s is forbidden","reason":"Forbidden","details":{"name":%[1]q,"kind":%[2]q},"code":403}`, name,
		kind))
}

// TestFleetAmbiguousWrites fails if a write by a bare name is done while another cluster may have such an object.
func TestFleetAmbiguousWrites(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"x","resourceVersion":"7"}}`
	for name, tt := range map[string]struct {
		other   http.HandlerFunc
		code    int
		message string
	}{
		"it has one":  {respond(200, pod), 409, "name one of them, as web@a or web@b"},
		"it has none": {refuse(404, "NotFound", `pods "web" not found`), 200, `"web"`},
		"it is down": {refuse(503, "ServiceUnavailable", "etcd is down"), 502,
			`pods "web" is in cluster "a", and may be in another one, too: cluster "b": etcd is down; ` +
				`to select the one that was found,` +
				` use the name web@a`},
		"it may not say":         {forbid("web", "pods"), 200, `"web"`},
		"it refuses the gateway": {forbid("alice", "users"), 502, "and may be in another one"},
	} {
		t.Run(name, func(t *testing.T) {
			h, members := newFleet(t, gatewaytest.Options{BareWrites: fleet.BareAll}, respond(200, pod), tt.other)
			for _, method := range []string{"PUT", "PATCH", "DELETE"} {
				for _, m := range members {
					m.TakeRequests()
				}
				header := http.Header{"Content-Type": {map[string]string{"PATCH": "application/merge-patch+json"}[method]}}
				body := map[string]string{"PUT": pod, "PATCH": `{"spec":{}}`}[method]
				text, resp := h.DoText(method, "/fleet/api/v1/namespaces/x/pods/web", header, body)
				if resp.StatusCode != tt.code || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), tt.message) {
					t.Errorf("%s: %s %s", method, resp.Status, text)
				}
				for i, m := range members {
					for _, r := range m.TakeRequests() {
						if r.Method != http.MethodGet && (i != 0 || tt.code != 200) {
							t.Errorf("%s: member %d receives %s", method, i, r.Method)
						}
					}
				}
			}
		})
	}
}

// TestFleetWarningsOfMembers fails if a member's warning is lost, repeated, or reads as the gateway's.
func TestFleetWarningsOfMembers(t *testing.T) {
	warns := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Warning", `299 - "v1 Thing is deprecated"`)
			w.Header().Add("Warning", "299 clusterpass "+text)
			respond(200, podList("10"))(w, r)
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, warns(`"plain"`),
		warns(`"cl\uster \"a\" did not answer within 10s (left out)"`))
	_, resp := h.list("/fleet/api/v1/pods", nil)
	got := strings.ReplaceAll(strings.Join(resp.Header["Warning"], "\n"), `\"`, `"`)
	want := `299 - "v1 Thing is deprecated"
299 clusterpass "plain"
299 clusterpass "cluster "b" warns: cluster "a" did not answer within 10s (left out)"`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestFleetCandidates fails if a new object needs a cluster although only one has the kind, or if the refusal misleads.
func TestFleetCandidates(t *testing.T) {
	having := func(resources string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/api/v1":
				respond(200,
					`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[`+resources+`]}`)(w, r)
			case r.Method == http.MethodPost:
				respond(201, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"x","resourceVersion":"7"}}`)(w,
					r)
			default:
				refuse(404, "NotFound", "the server could not find the requested resource")(w, r)
			}
		}
	}
	const has, hasNot = `{"name":"pods","kind":"Pod","namespaced":true}`,
		`{"name":"secrets","kind":"Secret","namespaced":true}`
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"}}`
	for name, tt := range map[string]struct {
		members []http.HandlerFunc
		code    int
		message string
	}{
		"one":  {[]http.HandlerFunc{having(hasNot), having(has), having(hasNot)}, 201, `"cached-from-cluster":"b"`},
		"two":  {[]http.HandlerFunc{having(has), having(hasNot), having(has)}, 422, "clusters for pods: a, c"},
		"none": {[]http.HandlerFunc{having(hasNot), having(hasNot)}, 422, "clusters for pods: a, b"},
		"one hangs": {
			[]http.HandlerFunc{having(has), refuse(503, "ServiceUnavailable", "no")}, 422, "clusters for pods: a, b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, tt.members...)
			text, resp := h.DoText("POST", "/fleet/api/v1/namespaces/x/pods", http.Header{"Content-Type": {"application/json"}},
				pod)
			if text = strings.ReplaceAll(text, "resource.karmada.io/", ""); resp.StatusCode != tt.code ||
				!strings.Contains(text, tt.message) {
				t.Errorf("%s %s", resp.Status, text)
			}
		})
	}
}

// TestFleetContradictions fails if a write is done although its path, query and body name different clusters.
func TestFleetContradictions(t *testing.T) {
	const pods = "/fleet/api/v1/namespaces/x/pods"
	pod := func(name, placement string) string {
		return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,`+
			`"annotations":{"clusterpass.io/cluster":%q}}}`, name, placement)
	}
	h, members := newFleet(t, gatewaytest.Options{}, refuse(404, "NotFound", "no such"),
		refuse(404, "NotFound", "no such"))
	for _, tt := range []struct{ method, path, body, message string }{
		{"POST", pods, pod("web@a", "b"), `metadata.name names "a", the annotation clusterpass.io/cluster names "b"`},
		{"PUT", pods + "/web", strings.Replace(pod("web", "b"), `"annotations":{`,
			`"annotations":{"resource.karmada.io/cached-from-cluster":"a",`, 1),
			`the object belongs to cluster "b" by its annotation clusterpass.io/cluster, but was read from "a"`},
		{"POST", "/fleet/api/v1/namespaces/x@b/pods", pod("web@a", ""), `metadata.name names "a", the namespace names "b"`},
		{"POST", pods, pod("web@z", ""), `"z" is not a cluster that you may call, or the request does not cover it: name`},
		{"POST", pods, pod("web", "z"), `"z" is not a cluster that you may call, or the request does not cover it: name`},
		{"POST", pods, pod("dev@example.com", ""), `"message":"the request names no cluster`},
	} {
		text, resp := h.DoText(tt.method, tt.path, http.Header{"Content-Type": {"application/json"}}, tt.body)
		if text = strings.ReplaceAll(text, `\"`, `"`); resp.StatusCode != http.StatusUnprocessableEntity ||
			!strings.Contains(text, tt.message) {
			t.Errorf("%s %s %s: %s %s", tt.method, tt.path, tt.body, resp.Status, text)
		}
	}
	for _, m := range members {
		for _, r := range m.TakeRequests() {
			if r.Method != http.MethodGet {
				t.Errorf("%s %s", r.Method, r.URI)
			}
		}
	}
}

// TestFleetCollectionOptions fails if large options are copied for each cluster.
func TestFleetCollectionOptions(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("5")), respond(200, podList("5")))
	for size, code := range map[int]int{60 << 10: http.StatusOK, 70 << 10: http.StatusRequestEntityTooLarge} {
		body := `{"kind":"DeleteOptions","apiVersion":"v1","x":"` + strings.Repeat("x", size) + `"}`
		if text, resp := h.DoText("DELETE", "/fleet/api/v1/namespaces/x/pods",
			http.Header{"Content-Type": {"application/json"}}, body); resp.StatusCode != code {
			t.Errorf("%d bytes: %s %s", size, resp.Status, text)
		}
	}
}

// TestFleetHidesClusters fails if a caller without rights learns labels of clusters or the control-plane cluster.
func TestFleetHidesClusters(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("5")), respond(200, podList("5")))
	h.Grant("only-a", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["a"],`+
		`"verbs":["*"]}`)
	h.setLabels("b", map[string]string{"tenant": "acme"})
	h.ClientTLS.Certificates[0] = h.ClientCertificate("bob", "only-a", "system:authenticated")
	errors := map[string]bool{}
	for _, tenant := range []string{"acme", "nobody"} {
		text, resp := h.DoText("GET", "/fleet/api/v1/pods?clusterSelector=tenant%3D"+tenant, nil, "")
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", tenant, resp.Status)
		}
		errors[text] = true
	}
	if len(errors) != 1 {
		t.Errorf("the errors differ: %v", errors)
	}

	h = newGateway(t, gatewaytest.Options{ControlPlane: "cp"})
	kinds := respond(200,
		`{"kind":"APIResourceList","resources":[{"name":"gateways","kind":"Gateway","namespaced":true}]}`)
	h.AddCluster("a", clustertest.NewMember(t, kinds).Kubeconfig(`{token: t}`))
	h.AddCluster("cp", clustertest.NewMember(t, refuse(503, "x", "down")).Kubeconfig(`{token: t}`))
	h.AddRegistry("g", `{"targetCluster":{"clusterNames":["a"]},"resourceSelectors":[{"apiVersion":"x.io/v1",`+
		`"kind":"Gateway"}]}`)
	h.Grant("only-a", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["a"],`+
		`"verbs":["*"]}`)
	h.ClientTLS.Certificates[0] = h.ClientCertificate("bob", "only-a", "system:authenticated")
	text, resp := h.DoText("DELETE", "/fleet/apis/x.io/v1/namespaces/x/gateways/one", nil, "")
	if resp.StatusCode != http.StatusBadGateway ||
		!strings.Contains(text, "the control-plane cluster cannot be discovered now") || strings.Contains(text, `"cp`) {
		t.Errorf("%s %s", resp.Status, text)
	}
	// No registry covers this kind, so the control-plane cluster alone serves it.
	text, resp = h.DoText("GET", "/fleet/api/v1/namespaces/x/secrets", nil, "")
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "secrets of v1") ||
		strings.Contains(text, `"cp`) {
		t.Errorf("%s %s", resp.Status, text)
	}
}
