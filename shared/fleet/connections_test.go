package fleet_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestManyClustersHaveOneConnectionEach fails if discovery, kinds and lists of hundreds of clusters opened connections
// of their own, whose memory and handshakes count hundreds of times.
func TestManyClustersHaveOneConnectionEach(t *testing.T) {
	const discovery = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
		{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[{"resource":"stuff",
		"responseKind":{"kind":"Thing"},"scope":"Namespaced","verbs":["list"]}]}]}]}`
	things := withHonestPod("one")
	h := newGateway(t, gatewaytest.Options{})
	h.AddRegistry("things", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"example.com/v1","kind":"Thing"}]}`)
	var clusters []*clustertest.Member
	for i := range members.Many + 1 {
		m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/api", "/apis":
				respond(200, discovery)(w, r)
			case "/apis/example.com/v1":
				respond(200, `{"kind":"APIResourceList","resources":[{"name":"stuff","kind":"Thing","namespaced":true}]}`)(w, r)
			default:
				things(w, r)
			}
		})
		clusters = append(clusters, m)
		h.AddCluster(fmt.Sprintf("c%d", i), m.Kubeconfig(`{token: t}`))
	}
	const version = "/fleet/apis/example.com/v1"
	if l, resp := h.list(version+"/stuff", nil); len(l.Items) != len(clusters) || resp.Header["Warning"] != nil {
		t.Fatalf("%d things, warnings %q", len(l.Items), resp.Header["Warning"])
	}
	if _, resp := h.DoText("GET", version, nil, ""); resp.StatusCode != 200 || resp.Header["Warning"] != nil {
		t.Fatalf("discovery: %s %q", resp.Status, resp.Header["Warning"])
	}
	for i, c := range clusters {
		var paths []string
		for _, r := range c.Requests() {
			paths = append(paths, r.URI)
		}
		if n := c.OpenedConnections(); n != 1 || len(paths) < 4 {
			t.Errorf("cluster %d: %d connections for the requests %q", i, n, paths)
		}
	}
}
