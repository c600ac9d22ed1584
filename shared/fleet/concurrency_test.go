package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestFleetTogether fails if the fleet calls a cluster only after another has answered. Requests would then need the
// sum of the clusters' times.
func TestFleetTogether(t *testing.T) {
	t.Parallel() // it waits more than it computes
	const namespaced = "/fleet/api/v1/namespaces/x/pods"
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`
	discovers := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{},"versions":[{"version":"v1","resources":[
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
		"discovery":        {"GET", "/fleet/api/v1", [2]http.HandlerFunc{respond(200, discovers), respond(200, discovers)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked [2]chan struct{}
			var members [2]http.HandlerFunc
			for i, answer := range tt.answers {
				asked[i] = make(chan struct{})
				var first sync.Once
				members[i] = func(w http.ResponseWriter, r *http.Request) {
					first.Do(func() { close(asked[i]) })
					select {
					case <-asked[1-i]:
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

// TestFleetDiscoveryKept fails if each discovery request of a caller calls all clusters. It also fails if another
// caller gets results that were cached for the first.
func TestFleetDiscoveryKept(t *testing.T) {
	// Each caller sees a resource of their own, as where the cluster's own rights say who may see which.
	tells := func(w http.ResponseWriter, r *http.Request) {
		const list = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[%s]}`
		if r.URL.Path != "/api" {
			respond(200, fmt.Sprintf(list, ""))(w, r)
			return
		}
		respond(200, fmt.Sprintf(list, fmt.Sprintf(`{"metadata":{},"versions":[{"version":"v1",`+
			`"resources":[{"resource":"of-%s","responseKind":{"kind":"K"},"scope":"Namespaced","verbs":["get"]}]}]}`,
			r.Header.Get("Impersonate-User"))))(w, r)
	}
	h, members := newFleet(t, gatewaytest.Options{}, tells, tells)
	h.AddRegistry("all", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"*"}]}`)
	h.Grant("some", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["b"],`+
		`"verbs":["get"]}`)
	for _, tt := range []struct {
		user, group string
		asked       [2]int
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
		var asked [2]int
		for i, m := range members {
			for _, r := range m.TakeRequests() {
				if r.URI == "/api" {
					asked[i]++
				}
			}
		}
		if asked != tt.asked {
			t.Errorf("for %s the clusters are asked %d times, want %d", tt.user, asked, tt.asked)
		}
	}
}

// TestFleetDiscoveryOnce fails if concurrent discovery requests of one caller each call all clusters. It also fails if
// the others get an error when the first of them is canceled.
func TestFleetDiscoveryOnce(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var asked atomic.Int32
	const together = 8
	var came atomic.Int32
	left := make(chan struct{}, together+1)
	h, _ := newFleet(t, gatewaytest.Options{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer context.AfterFunc(r.Context(), func() { left <- struct{}{} })()
			came.Add(1)
			next.ServeHTTP(w, r)
		})
	}}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis" && asked.Add(1) == 1 {
			close(began)
		}
		<-goOn
		respond(200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)(w, r)
	})
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		req, err := http.NewRequestWithContext(ctx, "GET", h.URL+"/fleet/apis", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := h.HTTPClient.Do(req); err == nil {
			t.Errorf("who left is answered: %s", resp.Status)
			_ = resp.Body.Close()
		}
	})
	<-began
	for range together {
		all.Go(func() {
			if got, resp := h.DoText("GET", "/fleet/apis", nil, ""); resp.StatusCode != 200 ||
				strings.Contains(resp.Header.Get("Warning"), "left out") || !strings.Contains(got, "APIGroupList") {
				t.Errorf("%s %q %s", resp.Status, resp.Header["Warning"], got)
			}
		})
	}
	waittest.Until(t, "all calls have come", func() bool { return came.Load() == together+1 })
	leave()
	<-left
	close(goOn)
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the cluster is asked %d times", n)
	}
}
