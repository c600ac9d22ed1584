package fleet_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// withObject returns a handler that responds to a get with object, or with 404 if it is empty.
func withObject(object string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			respond(200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)(w, r)
		case object == "":
			refuse(404, "NotFound", "not found")(w, r)
		default:
			respond(200, object)(w, r)
		}
	}
}

// TestFleetAudit fails if an audit event does not name each cluster of the objects.
func TestFleetAudit(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`
	h, _ := newFleet(t, gatewaytest.Options{BareWrites: fleet.BareAll}, withObject(""), withObject(pod), withObject(""))
	for _, tt := range []struct{ method, path, body, want string }{
		{"GET", "/pods/one", "", "b"},
		{"GET", "/pods/one@b", "", "b"},
		{"PATCH", "/pods/one", `{"metadata":{"labels":{"a":"b"}}}`, "b"},
		{"DELETE", "/pods/one@c", "", "c"},
		{"POST", "/pods/one/eviction", `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"one"}}`, "b"},
		{"POST", "/pods", `{"metadata":{"name":"two@a"}}`, "a"},
		{"DELETE", "/pods?clusters=a,c", "", "a,c"},
		{"GET", "/pods/two@a", "", ""},
		{"POST", "/pods", `{"metadata":{"name":"two"}}`, ""},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		if tt.method == "PATCH" {
			header = http.Header{"Content-Type": {"application/merge-patch+json"}}
		}
		_, _ = io.Copy(io.Discard, h.Do(tt.method, "/fleet/api/v1/namespaces/x"+tt.path, header, tt.body).Body)
		if got := h.Audit.Events(t, 1)[0]; got.Annotations[audit.ClusterAnnotation] != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.method, tt.path, got.Annotations[audit.ClusterAnnotation], tt.want)
		}
	}
}

// TestFleetSelectsPodsOfOneCluster fails if kubectl logs deployment/x uses pods of another cluster.
func TestFleetSelectsPodsOfOneCluster(t *testing.T) {
	const deployment = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"x"},` +
		`"spec":{"selector":{"matchLabels":{"app":"web"}}}}`
	answers := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/apps/") {
			respond(200, deployment)(w, r)
			return
		}
		respond(200, podList("10", "x/web-1"))(w, r)
	}
	h, members := newFleet(t, gatewaytest.Options{}, answers, answers)
	h.AddRegistry("apps", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"apps/v1","kind":"*"}]}`)
	for command, want := range map[string]string{"kubectl exec": "b", "kubectl logs": "b", "kubectl attach": "b",
		"kubectl port-forward": "b", "kubectl edit": "", "": ""} {
		resp := h.Do("GET", "/fleet/apis/apps/v1/namespaces/x/deployments/web@b", http.Header{"Kubectl-Command": {command}},
			"")
		var d struct {
			Metadata struct{ Name string }
			Spec     struct {
				Selector struct{ MatchLabels map[string]string }
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
			t.Fatal(err)
		}
		if got := d.Spec.Selector.MatchLabels; got["clusterpass.io/cluster"] != want || got["app"] != "web" ||
			d.Metadata.Name != "web@b" {
			t.Errorf("%q reads %+v", command, d)
		}
	}
	for _, m := range members {
		m.TakeRequests()
	}
	for query, want := range map[string]string{
		"labelSelector=app%3Dweb,clusterpass.io/cluster%3Db":                 "web-1@b@b",
		"labelSelector=clusterpass.io/cluster+in+(b),app%3Dweb":              "web-1@b@b",
		"labelSelector=app%3Dweb,clusterpass.io/cluster+in+(a,b)":            "web-1@a web-1@b",
		"labelSelector=app%3Dweb,clusterpass.io/cluster+in+(a,b)&clusters=a": "web-1@a@a",
	} {
		if l, _ := h.list("/fleet/api/v1/namespaces/x/pods?"+query, nil); l.names() != want {
			t.Errorf("%s: %q, want %q", query, l.names(), want)
		}
	}
	requests := 0
	for _, m := range members {
		for _, r := range m.TakeRequests() {
			if requests++; r.URI != "/api/v1/namespaces/x/pods?labelSelector=app%3Dweb&pretty=false" {
				t.Errorf("a member receives %s", r.URI)
			}
		}
	}
	if requests != 5 {
		t.Errorf("the members receive %d requests, want 5", requests)
	}
	for query, want := range map[string]string{
		"clusterpass.io/cluster!%3Da":                           "supports only = and in",
		"clusterpass.io/cluster%3Da,clusterpass.io/cluster%3Db": "twice",
		"clusterpass.io/cluster%3Da&clusters=b":                 "no cluster in common",
		"clusterpass.io/cluster%3Da&fieldSelector=metadata.name%3Dweb-1%40b": `names cluster "a", its field selector ` +
			`"b"`,
		"clusterpass.io/cluster%3D(": "cannot be understood",
	} {
		query = "labelSelector=" + query
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/namespaces/x/pods?"+query, nil, ""), 400, "bad_request", want)
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/namespaces/x/pods/p@a?labelSelector=clusterpass.io/cluster%3Db",
		nil, ""), 400, "bad_request", `names cluster "a"`)
	gatewaytest.WantStatus(t, h.Do("DELETE", "/fleet/api/v1/pods?labelSelector=clusterpass.io/cluster%3Dnope", nil, ""),
		404, "unknown_cluster", `no cluster "nope"`)
	for _, m := range members {
		if n := len(m.TakeRequests()); n > 0 {
			t.Errorf("a member receives %d of the refused requests", n)
		}
	}
}

// TestFleetInvalidPaths fails if a path that no API server serves reaches a cluster, or if its error hides the mistake.
func TestFleetInvalidPaths(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(200, podList("1")))
	for path, want := range map[string]string{
		"/api/v1/Pods":                   `"Pods" is not the name of a resource`,
		"/api/v1/namespaces/x/po%20ds":   "not the name of a resource",
		"/api/V1/pods":                   `"V1" is no API version`,
		"/apis/a_b/v1/pods":              `"a_b" is no API group`,
		"/apis//v1/pods":                 "empty segments are refused",
		"/api/v1/namespaces//pods":       "empty segments are refused",
		"/api/v1/namespaces/x//pods":     "empty segments are refused",
		"/api/v1/namespaces/x/pods//log": "empty segments are refused",
	} {
		gatewaytest.WantStatus(t, h.Do("GET", "/fleet"+path, nil, ""), 400, "bad_request", want)
		gatewaytest.WantStatus(t, h.Do("DELETE", "/fleet"+path, nil, ""), 400, "bad_request", want)
	}
	if n := len(members[0].Requests()); n > 0 {
		t.Errorf("the cluster receives %d requests", n)
	}
}

// TestFleetRefusesRepeatedFields fails if clients attribute an object with a repeated field to another cluster.
func TestFleetRefusesRepeatedFields(t *testing.T) {
	const twice = `{"metadata":{"name":"one","namespace":"x"},` +
		`"metadata":{"annotations":{"resource.karmada.io/cached-from-cluster":"a"}}}`
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("1", "x/"+strings.Repeat("y", 1<<20))),
		func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/one") {
				respond(200, `{"kind":"Pod","apiVersion":"v1",`+twice[1:])(w, r)
				return
			}
			respond(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`+twice+`]}`)(w, r)
		})
	resp := h.Do("GET", "/fleet/api/v1/pods", nil, "")
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the list contains the object: %s", body[max(0, len(body)-300):])
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api/v1/namespaces/x/pods/one?clusters=b", nil, ""), 502, "aborted",
		"has a duplicate field")
}
