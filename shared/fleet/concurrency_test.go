package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestFleetCallsClustersInParallel fails if a request needs the sum of the clusters' times.
func TestFleetCallsClustersInParallel(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	const namespaced = "/fleet/api/v1/namespaces/x/pods"
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`
	discovery := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{},
		"versions":[{"version":"v1","resources":[
		{"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["get"]}]}]}]}`
	for name, tt := range map[string]struct {
		method, path string
		answers      [2]http.HandlerFunc
	}{
		"list": {"GET", "/fleet/api/v1/pods", [2]http.HandlerFunc{withHonestPod("one"), withHonestPod("two")}},
		"page": {"GET", "/fleet/api/v1/pods?limit=5",
			[2]http.HandlerFunc{withHonestPod("one"), withHonestPod("two")}},
		"watch": {"GET", "/fleet/api/v1/pods?watch=1",
			[2]http.HandlerFunc{withHonestPod("one"), withHonestPod("two")}},
		"get":              {"GET", namespaced + "/one", [2]http.HandlerFunc{withObject(pod), withObject("")}},
		"delete":           {"DELETE", namespaced + "/one", [2]http.HandlerFunc{withObject(""), withObject(pod)}},
		"deletecollection": {"DELETE", namespaced, [2]http.HandlerFunc{withHonestPod("one"), withHonestPod("two")}},
		"discovery":        {"GET", "/fleet/api/v1", [2]http.HandlerFunc{respond(200, discovery), respond(200, discovery)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var called [2]chan struct{}
			var members [2]http.HandlerFunc
			for i, answer := range tt.answers {
				called[i] = make(chan struct{})
				var first sync.Once
				members[i] = func(w http.ResponseWriter, r *http.Request) {
					first.Do(func() { close(called[i]) })
					select {
					case <-called[1-i]:
						answer(w, r)
					case <-r.Context().Done():
					}
				}
			}
			h, _ := newFleet(t, gatewaytest.Options{BareWrites: fleet.BareAll}, members[:]...)
			if resp := h.Do(tt.method, tt.path, nil, ""); resp.StatusCode != 200 || resp.Header["Warning"] != nil {
				t.Errorf("%s, warnings %q", resp.Status, resp.Header["Warning"])
			}
		})
	}
}

// TestFleetDiscoveryIsCachedByCaller fails if discovery of a caller is not cached, or if another caller gets it.
func TestFleetDiscoveryIsCachedByCaller(t *testing.T) {
	// Each caller sees another resource, as if discovery depended on the rights in the cluster.
	perCaller := func(w http.ResponseWriter, r *http.Request) {
		const list = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[%s]}`
		if r.URL.Path != "/api" {
			respond(200, fmt.Sprintf(list, ""))(w, r)
			return
		}
		respond(200, fmt.Sprintf(list, fmt.Sprintf(`{"metadata":{},"versions":[{"version":"v1",`+
			`"resources":[{"resource":"of-%s","responseKind":{"kind":"K"},"scope":"Namespaced","verbs":["get"]}]}]}`,
			r.Header.Get("Impersonate-User"))))(w, r)
	}
	h, members := newFleet(t, gatewaytest.Options{DiscoveryTTL: time.Hour}, perCaller, perCaller)
	h.AddRegistry("all", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"*"}]}`)
	h.Grant("some", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["b"],`+
		`"verbs":["get"]}`)
	for _, tt := range []struct {
		user, group string
		calls       [2]int // of each cluster
	}{
		{"alice", "dev", [2]int{1, 1}},
		{"carol", "dev", [2]int{1, 1}},
		{"bob", "some", [2]int{0, 1}},
	} {
		h.LogIn(tt.user, tt.group)
		for range 2 {
			got, resp := h.DoText("GET", "/fleet/api/v1", nil, "")
			if resp.StatusCode != 200 || strings.Count(got, `"of-`) != 1 || !strings.Contains(got, `"of-`+tt.user+`"`) ||
				resp.Header["Warning"] != nil {
				t.Errorf("%s: %s %q %s", tt.user, resp.Status, resp.Header["Warning"], got)
			}
		}
		var calls [2]int
		for i, m := range members {
			for _, r := range m.TakeRequests() {
				if r.URI == "/api" {
					calls[i]++
				}
			}
		}
		if calls != tt.calls {
			t.Errorf("the clusters receive %d requests for %s, want %d", calls, tt.user, tt.calls)
		}
	}
}

// TestFleetDiscoveryIsShared fails if concurrent discovery calls clusters repeatedly, or ends with the first request.
func TestFleetDiscoveryIsShared(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	const concurrent = 8
	var received, calls atomic.Int32 // requests to the gateway, and calls of the cluster
	canceled := make(chan struct{}, concurrent+1)
	h, _ := newFleet(t, gatewaytest.Options{DiscoveryTTL: time.Hour, Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer context.AfterFunc(r.Context(), func() { canceled <- struct{}{} })()
			received.Add(1)
			next.ServeHTTP(w, r)
		})
	}}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis" && calls.Add(1) == 1 {
			close(began)
		}
		<-release
		respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		req, err := http.NewRequestWithContext(ctx, "GET", h.URL+"/fleet/apis", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := h.HTTPClient.Do(req); err == nil {
			t.Errorf("the canceled request gets a response: %s", resp.Status)
			_ = resp.Body.Close()
		}
	})
	<-began
	for range concurrent {
		all.Go(func() {
			if got, resp := h.DoText("GET", "/fleet/apis", nil, ""); resp.StatusCode != 200 ||
				strings.Contains(resp.Header.Get("Warning"), "left out") || !strings.Contains(got, "APIGroupList") {
				t.Errorf("%s %q %s", resp.Status, resp.Header["Warning"], got)
			}
		})
	}
	waittest.Until(t, "the gateway has received all requests", func() bool { return received.Load() == concurrent+1 })
	cancel()
	<-canceled
	close(release)
	all.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("the cluster receives %d requests, want 1", n)
	}
}
