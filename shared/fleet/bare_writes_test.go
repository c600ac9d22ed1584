package fleet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

func lackPod(name string) http.HandlerFunc {
	return respond(404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound",`+
		`"message":"pods \"`+name+`\" not found","details":{"name":"`+name+`","kind":"pods"},"code":404}`)
}

const (
	barePod      = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x","resourceVersion":"7"}}`
	bareRefused  = "by its name alone is refused"
	misplacedPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x",` +
		`"annotations":{"clusterpass.io/cluster":"a"}}}`
	appliedManifest = `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":` +
		`"{\"metadata\":{\"annotations\":{\"clusterpass.io/cluster\":\"a\"}}}"}}}`
)

var bareCases = map[string]struct {
	opts                        gatewaytest.Options
	a, b                        string // the objects of the clusters, empty for none
	method, path, command, body string
	code                        int
	message                     string // in a refusal
}{
	"a deletion":                     {b: barePod, method: "DELETE", path: "/x/pods/one", code: 422, message: bareRefused},
	"a deletion of a missing object": {method: "DELETE", path: "/x/pods/one", code: 404},
	"a deletion of an object of both": {
		a: barePod, b: barePod, method: "DELETE", path: "/x/pods/one", code: 409, message: "name one of them",
	},
	"a deletion by its cluster":   {b: barePod, method: "DELETE", path: "/x/pods/one@b", code: 200},
	"a deletion in its namespace": {b: barePod, method: "DELETE", path: "/x@b/pods/one", code: 200},
	"a deletion in one cluster":   {b: barePod, method: "DELETE", path: "/x/pods/one?clusters=b", code: 200},
	"a deletion in two clusters": {
		b: barePod, method: "DELETE", path: "/x/pods/one?clusters=a,b", code: 422, message: bareRefused,
	},
	"a deletion of one uid": {
		b: barePod, method: "DELETE", path: "/x/pods/one", body: `{"preconditions":{"uid":"u"}}`, code: 200,
	},
	"a deletion where all may be": {
		opts: gatewaytest.Options{BareWrites: fleet.BareAll}, b: barePod, method: "DELETE", path: "/x/pods/one",
		code: 200,
	},
	"a patch": {
		b: barePod, method: "PATCH", path: "/x/pods/one", body: `{"spec":{}}`, code: 422, message: bareRefused,
	},
	"a patch of a subresource": {
		b: barePod, method: "PATCH", path: "/x/pods/one/status", body: `{"status":{}}`, code: 422, message: bareRefused,
	},
	"a patch with its placement": {
		b: barePod, method: "PATCH", path: "/x/pods/one",
		body: `{"metadata":{"annotations":{"clusterpass.io/cluster":"b"}}}`, code: 200,
	},
	"kubectl apply": {
		b: barePod, method: "PATCH", path: "/x/pods/one", command: "kubectl apply", body: `{"spec":{}}`, code: 200,
	},
	"kubectl apply where none may be": {
		opts: gatewaytest.Options{BareWrites: fleet.BareNone}, b: barePod, method: "PATCH", path: "/x/pods/one",
		command: "kubectl apply", body: `{"spec":{}}`, code: 422, message: bareRefused,
	},
	"kubectl apply of a stored manifest": {
		b: misplacedPod, method: "PATCH", path: "/x/pods/one", command: "kubectl apply", body: `{"spec":{}}`, code: 422,
		message: bareRefused,
	},
	"kubectl apply with its manifest": {b: misplacedPod, method: "PATCH", path: "/x/pods/one", command: "kubectl apply",
		body: appliedManifest, code: 404},
	"an update": {b: barePod, method: "PUT", path: "/x/pods/one", body: barePod, code: 200},
	"an update where none may be": {
		opts: gatewaytest.Options{BareWrites: fleet.BareNone}, b: barePod, method: "PUT", path: "/x/pods/one", body: barePod,
		code: 422, message: bareRefused,
	},
	"a read before an edit": {
		b: barePod, method: "GET", path: "/x/pods/one", command: "kubectl edit", code: 422, message: "the edit of pods",
	},
	"a read before a label": {b: barePod, method: "GET", path: "/x/pods/one", command: "kubectl label", code: 200},
}

// TestFleetBareWrites fails if a write without a cluster reaches another object than meant, or a safe one is refused.
func TestFleetBareWrites(t *testing.T) {
	for name, tt := range bareCases {
		t.Run(name, func(t *testing.T) {
			handler := func(object string) http.HandlerFunc {
				if object == "" {
					return lackPod("one")
				}
				return respond(200, object)
			}
			h, members := newFleet(t, tt.opts, handler(tt.a), handler(tt.b))
			header := http.Header{}
			if tt.command != "" {
				header.Set("Kubectl-Command", tt.command)
			}
			if tt.method == "PATCH" {
				header.Set("Content-Type", "application/merge-patch+json")
			}
			text, resp := h.DoText(tt.method, "/fleet/api/v1/namespaces"+tt.path, header, tt.body)
			if resp.StatusCode != tt.code || !strings.Contains(text, tt.message) {
				t.Errorf("%s %s, want %d %s", resp.Status, text, tt.code, tt.message)
			}
			for i, m := range members {
				for _, r := range m.TakeRequests() {
					if r.Method != http.MethodGet && tt.code != 200 && (i == 1 || tt.code == 422) {
						t.Errorf("cluster %d receives %s %s", i, r.Method, r.URI)
					}
				}
			}
		})
	}
}

// TestFleetBareWritesOfOneCluster fails if a bare name needs a cluster where registries choose only one. Kubernetes'
// conformance specs would then fail on a fleet of one beside other clusters.
func TestFleetBareWritesOfOneCluster(t *testing.T) {
	h, m := newGateway(t, gatewaytest.Options{}), clustertest.NewMember(t, withPod("one"))
	const pods = "/fleet/api/v1/namespaces/x/pods"
	prune := http.Header{"Kubectl-Command": {"kubectl apply"}}
	h.AddCluster("a", m.Kubeconfig(`{token: t}`))
	h.AddCluster("apart", m.Kubeconfig(`{token: t}`))
	h.AddRegistry("pods", `{"targetCluster":{"clusterNames":["a","other"]},`+
		`"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
	if resp := h.Do("DELETE", pods+"/one", nil, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a deletion: %s", resp.Status)
	}
	if resp := h.Do("GET", pods+"?labelSelector=a", prune, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a list to prune: %s", resp.Status)
	}
	h.AddCluster("other", m.Kubeconfig(`{token: t}`))
	h.AddRegistry("configmaps", `{"targetCluster":{"clusterNames":["a"]},`+
		`"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap"}]}`)
	m.TakeRequests()
	h.Do("DELETE", "/fleet/api/v1/namespaces/x/configmaps/one", nil, "")
	for _, r := range m.TakeRequests() {
		if r.Method == http.MethodDelete {
			t.Errorf("the object of one of two clusters is deleted: %s", r.URI)
		}
	}
	for query, code := range map[string]int{
		"": 422, "?clusters=a,other": 200, "?labelSelector=clusterpass.io/cluster%3Da": 200,
	} {
		if resp := h.Do("GET", pods+query, prune, ""); resp.StatusCode != code {
			t.Errorf("a list to prune, %q: %s, want %d", query, resp.Status, code)
		}
	}
	if resp := h.Do("GET", "/fleet/api/v1/namespaces/x@a/pods", prune, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a list to prune in a namespace of one cluster: %s", resp.Status)
	}
}

// TestFleetNamesForCommands fails if kubectl delete -l is refused, or kubectl apply patches the name each time.
func TestFleetNamesForCommands(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, withPod("one"), withPod("two"))
	const pods = "/api/v1/namespaces/x/pods"
	for _, tt := range []struct{ command, path, want string }{
		{"kubectl delete", "/fleet" + pods, "one@a@a two@b@b"},
		{"kubectl delete", "/fleet" + pods + "?fieldSelector=metadata.name%3Done", "one@a two@b"},
		{"kubectl get", "/fleet" + pods, "one@a two@b"},
		{"kubectl get", "/fleet/@" + pods, "one@a@a two@b@b"},
	} {
		if l, _ := h.list(tt.path, http.Header{"Kubectl-Command": {tt.command}}); l.names() != tt.want {
			t.Errorf("%s of %s: %s, want %s", tt.command, tt.path, l.names(), tt.want)
		}
	}
	for command, want := range map[string]string{
		"kubectl apply": `"name":"one"`, "kubectl diff": `"name":"one"`, "kubectl get": `"name":"one@a"`,
	} {
		text, _ := h.DoText("GET", "/fleet/@"+pods+"/one", http.Header{"Kubectl-Command": {command}}, "")
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", command, text, want)
		}
	}
}

// TestFleetStrictNeedsTheKind fails if users of strict informers do not learn which registries they need.
func TestFleetStrictNeedsTheKind(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("1", "x/one")),
		refuse(404, "NotFound", "the server could not find the requested resource"))
	for _, query := range []string{"?strict=true", "?strict=true&watch=1"} {
		text, resp := h.DoText("GET", "/fleet/api/v1/pods"+query, nil, "")
		const want = "spec.targetCluster of the registries, or by the parameter clusters"
		if resp.StatusCode != 404 || !strings.Contains(text, want) {
			t.Errorf("%s: %s %s", query, resp.Status, text)
		}
	}
	if l, resp := h.list("/fleet/api/v1/pods?strict=true&clusters=a", nil); l.names() != "one@a" {
		t.Errorf("the cluster that has the kind: %s %s", resp.Status, l.names())
	}
}
