package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) {
	waittest.RunParallel()
	leaktest.Main(m)
}

const (
	hangDeadline = 15 * time.Second // the other members need less, even on a busy machine

	// Karmada's path of requests to every cluster. Such requests ignore the registries.
	allClusters = "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy"

	allPods = `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`
)

type fixture struct {
	*gatewaytest.Gateway
	t testing.TB
}

func newGateway(t testing.TB, opts gatewaytest.Options) *fixture {
	t.Helper()
	return &fixture{gatewaytest.New(t, opts), t}
}

// newFleet returns a gateway with member clusters a, b, c, … that answer with handlers. A registry covers their pods.
func newFleet(t *testing.T, opts gatewaytest.Options, handlers ...http.HandlerFunc) (*fixture, []*clustertest.Member) {
	t.Helper()
	h := newGateway(t, opts)
	var members []*clustertest.Member
	for i, handler := range handlers {
		m := clustertest.NewMember(t, handler)
		members = append(members, m)
		h.AddCluster(string(rune('a'+i)), m.Kubeconfig(`{token: t}`))
	}
	h.AddRegistry("pods", allPods)
	return h, members
}

func (h *fixture) list(path string, header http.Header) (listing, *http.Response) {
	h.t.Helper()
	text, resp := h.DoText("GET", path, header, "")
	var l listing
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		h.t.Fatalf("%s: %v\n%s", path, err, text)
	}
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
	}
	return l, resp
}

// clusterID returns the revision at which a cluster was registered, by which the fleet's versions identify it.
func (h *fixture) clusterID(cluster string) uint64 {
	h.t.Helper()
	o, err := h.Objects.Get(h.t.Context(), v1alpha1.Prefix+cluster)
	if err != nil {
		h.t.Fatal(err)
	}
	return o.Created
}

// setLabels replaces the labels of a cluster and empties its spec.
func (h *fixture) setLabels(name string, labels map[string]string) {
	h.t.Helper()
	h.EditCluster(name, func(c *v1alpha1.Cluster) { c.Labels, c.Spec = labels, v1alpha1.ClusterSpec{} })
}

type listing struct {
	Kind     string
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        *int64
	}
	Items []struct {
		Metadata struct {
			Name, Namespace string
			Annotations     map[string]string
		}
	}
	ColumnDefinitions []struct{ Name string }
	Rows              []struct{ Cells []any }
}

func (l listing) names() string {
	var out []string
	for _, o := range l.Items {
		out = append(out, o.Metadata.Name+"@"+o.Metadata.Annotations["resource.karmada.io/cached-from-cluster"])
	}
	return strings.Join(out, " ")
}

func respond(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func refuse(code int, reason, message string) http.HandlerFunc {
	return respond(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":%q,"reason":%q,"code":%d}`, message, reason, code))
}

// podList returns a PodList as kube-apiserver writes it. Names have the form NAMESPACE/NAME.
func podList(resourceVersion string, names ...string) string {
	items := make([]string, len(names))
	for i, n := range names {
		namespace, name, _ := strings.Cut(n, "/")
		items[i] = fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"7"},"spec":{}}`, name, namespace)
	}
	return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"` + resourceVersion + `"},"items":[` +
		strings.Join(items, ",") + `]}` + "\n"
}
