package frontdoor

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/quota"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// One cluster that hangs must leave functions for the other clusters.
func TestRequestsBeyondTheShareOfAClusterGoToTheBridge(t *testing.T) {
	release := make(chan struct{})
	function := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Hang") != "" {
			<-release
		}
		w.WriteHeader(http.StatusOK)
	}
	front := &Server{
		Functions:  map[route.Backend]http.Handler{route.ToProxy: http.HandlerFunc(function)},
		Bridge:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }),
		PerCluster: quota.New(0, 2),
	}
	get := func(path string, hang bool) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if hang {
			r.Header.Set("Hang", "1")
		}
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		return w.Code
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { get("/clusters/hanging/api/v1/pods", true) })
	}
	waittest.Until(t, "two requests hang", func() bool { return front.PerCluster.InUse() == 2 })
	for path, want := range map[string]int{
		"/clusters/hanging/api/v1/pods": http.StatusAccepted,
		"/hanging/api/v1/pods":          http.StatusAccepted,
		"/clusters/healthy/api/v1/pods": http.StatusOK,
	} {
		if got := get(path, false); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	close(release)
	wg.Wait()
	waittest.Until(t, "the share is free", func() bool { return front.PerCluster.InUse() == 0 })
	if got := get("/clusters/hanging/api/v1/pods", false); got != http.StatusOK {
		t.Errorf("after the requests have ended: %d", got)
	}
}

// TestManyCallersOfOneCluster fails if a call failed because others are in flight, or if more of them than its share
// occupied functions.
func TestManyCallersOfOneCluster(t *testing.T) {
	const callers, share = 256, 16
	release := make(chan struct{})
	var inFunctions, inBridge atomic.Int64
	counts := func(n *atomic.Int64) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			<-release
			w.WriteHeader(http.StatusOK)
		})
	}
	front := &Server{
		Functions:  map[route.Backend]http.Handler{route.ToProxy: counts(&inFunctions)},
		Bridge:     counts(&inBridge),
		PerCluster: quota.New(0, share),
	}
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			w := httptest.NewRecorder()
			front.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/clusters/m/api/v1/pods", nil))
			if w.Code != http.StatusOK {
				t.Errorf("a call is answered by %d", w.Code)
			}
		})
	}
	waittest.Until(t, "all calls are in flight", func() bool { return inFunctions.Load()+inBridge.Load() == callers })
	if got := inFunctions.Load(); got != share {
		t.Errorf("%d calls are in functions, want %d", got, share)
	}
	close(release)
	group.Wait()
}
