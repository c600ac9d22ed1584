package frontdoor

import (
	"net/http"
	"net/http/httptest"
	"sync"
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
