package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/leaktest"
)

func TestMain(m *testing.M) {
	// The library's, once an audit file has been written: see audit.File.Open.
	leaktest.Main(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// fleetHangs is the deadline of the fleet in tests with members that hang. The other members need less, even on a busy
// machine.
const fleetHangs = 5 * time.Second

// fixture is a gateway with what tests of this package ask of it.
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
	h.AddRegistry("pods", podsOfAll)
	return h, members
}

// list makes a call that is answered with a list.
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

// clusterID returns the revision at which a cluster was registered, which is its name in the fleet's versions.
func (h *fixture) clusterID(cluster string) uint64 {
	h.t.Helper()
	o, err := h.Objects.Get(h.t.Context(), v1alpha1.Prefix+cluster)
	if err != nil {
		h.t.Fatal(err)
	}
	return o.Created
}

// label replaces the labels of a cluster, whose spec is empty afterwards.
func (h *fixture) label(name string, labels map[string]string) {
	h.t.Helper()
	h.EditCluster(name, func(c *v1alpha1.Cluster) { c.Labels, c.Spec = labels, v1alpha1.ClusterSpec{} })
}
