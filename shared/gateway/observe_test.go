package gateway_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// TestCompletedRequestsAreObserved: metrics must count each request once, with the error of the gateway and not with
// that of a member.
func TestCompletedRequestsAreObserved(t *testing.T) {
	var mu sync.Mutex
	var got []gateway.Completed
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
		c.Observe = func(r gateway.Completed) {
			mu.Lock()
			defer mu.Unlock()
			if r.Duration <= 0 {
				t.Errorf("the duration of %+v is not measured", r)
			}
			r.Duration = 0
			got = append(got, r)
		}
	}})
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/missing" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	h.AddCluster("m", m.Kubeconfig(token))
	for _, path := range []string{
		"/clusters/m/api/v1/pods", "/clusters/m/api/v1/missing", "/clusters/unknown/api/v1/pods",
		"/clusters/m/api/v1/pods?watch=true", "/a//b",
	} {
		h.Do("GET", path, nil, "")
	}
	h.Close() // waits for the requests
	want := []gateway.Completed{
		{Route: route.Cluster}, {Route: route.Cluster}, {Route: route.Cluster, Reason: status.UnknownCluster},
		{Route: route.Cluster, IsStream: true}, {Route: route.Gateway, Reason: status.BadRequest},
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("request %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}
