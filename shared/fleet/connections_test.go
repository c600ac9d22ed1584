package fleet_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestManyClustersHaveOneConnectionEach fails if discovery, kinds and lists of hundreds of clusters opened connections
// of their own, whose memory and handshakes count hundreds of times.
func TestManyClustersHaveOneConnectionEach(t *testing.T) {
	t.Run("a page of 33 clusters", func(t *testing.T) { checkOneConnectionEach(t, 33, "?limit=500") })
	t.Run("a whole list of 129 clusters", func(t *testing.T) { checkOneConnectionEach(t, 129, "") })
}

func checkOneConnectionEach(t *testing.T, n int, query string) {
	const discovery = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
		{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[{"resource":"stuff",
		"responseKind":{"kind":"Thing"},"scope":"Namespaced","verbs":["list"]}]}]}]}`
	things := withHonestPod("one")
	h := newGateway(t, gatewaytest.Options{})
	h.AddRegistry("things", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"example.com/v1","kind":"Thing"}]}`)
	var clusters []*clustertest.Member
	for i := range n {
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
	if l, resp := h.list(version+"/stuff"+query, nil); len(l.Items) != len(clusters) || resp.Header["Warning"] != nil {
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

// TestFleetWatchCost fails if an open watch of the fleet needs more goroutines than those of this version, or
// connections of its own. It also fails if a goroutine outlasts a watch. The goroutines include those of the client and
// of two members.
func TestFleetWatchCost(t *testing.T) {
	const watches, goroutines = 20, 11 // of each watch
	member := serveWatch(func(flush func(string), _ *http.Request) { flush(podList("5")) },
		func(flush func(string), r *http.Request) {
			flush(podEvent("ADDED", "pod", "6"))
			<-r.Context().Done()
		})
	h, clusters := newFleet(t, gatewaytest.Options{}, member, member)
	before := runtime.NumGoroutine()
	l, _ := h.list("/fleet/api/v1/pods", nil)
	var all []io.Closer
	for range watches {
		resp := h.Do("GET", "/fleet/api/v1/pods?watch=1&resourceVersion="+l.Metadata.ResourceVersion, nil, "")
		lines := bufio.NewReader(resp.Body)
		for range clusters {
			if e := nextEvent(t, lines); e.Type != "ADDED" {
				t.Fatalf("%+v", e)
			}
		}
		all = append(all, resp.Body)
	}
	waittest.Until(t, "the watches need at most the goroutines of this version", func() bool {
		return runtime.NumGoroutine()-before < watches*goroutines+watches/2
	})
	for i, c := range clusters {
		if n := c.OpenedConnections(); n > 2 { // one for the list, and one for all watches
			t.Errorf("cluster %d has %d connections", i, n)
		}
	}
	for _, body := range all {
		_ = body.Close()
	}
	waittest.Until(t, "no goroutine of a watch is left", func() bool {
		return runtime.NumGoroutine()-before < watches // those of shared connections stay
	})
}
