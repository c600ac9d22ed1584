package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// startedMembers is the number of members whose lists are requested at the beginning of a list without a limit.
const startedMembers = 80

// newWideFleet returns a gateway with members c00, c01, … that one server serves. Its bearer token names the member.
func newWideFleet(t *testing.T, n int, handler http.HandlerFunc) *fixture {
	t.Helper()
	h := newGateway(t, gatewaytest.Options{})
	h.AddRegistry("pods", allPods)
	m := clustertest.NewMember(t, handler)
	for i := range n {
		name := fmt.Sprintf("c%02d", i)
		h.AddCluster(name, m.Kubeconfig(`{token: `+name+`}`))
	}
	return h
}

func memberOf(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// TestLaterMembers fails if the responses of members waited while a list reads others: kube-apiserver ends them after a
// minute.
func TestLaterMembers(t *testing.T) {
	const all = startedMembers + 10
	var mu sync.Mutex
	queries, waiting, release := map[string][]string{}, 0, make(chan struct{})
	h := newWideFleet(t, all, func(w http.ResponseWriter, r *http.Request) {
		isFirst := r.URL.Query().Get("limit") == "1"
		mu.Lock()
		queries[memberOf(r)] = append(queries[memberOf(r)], r.URL.RawQuery)
		if !isFirst {
			waiting++
		}
		mu.Unlock()
		if !isFirst {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		withHonestPod("one")(w, r)
	})
	var l listing
	var list sync.WaitGroup
	list.Go(func() { l, _ = h.list("/fleet/api/v1/pods?labelSelector=a&resourceVersion=0", nil) })
	waittest.Until(t, "the lists of the first members, and one object of each other one, are requested", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return waiting == startedMembers && len(queries) == all
	})
	close(release)
	list.Wait()
	clusters := map[string]bool{}
	for _, o := range l.Items {
		clusters[o.Metadata.Annotations["resource.karmada.io/cached-from-cluster"]] = true
	}
	if len(clusters) != all || len(l.Items) != all {
		t.Errorf("%d objects of %d clusters", len(l.Items), len(clusters))
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range all {
		const whole = "labelSelector=a&pretty=false&resourceVersion=0"
		want := whole
		if i >= startedMembers {
			want = "labelSelector=a&limit=1&pretty=false&resourceVersion=0&resourceVersionMatch=NotOlderThan " + whole
		}
		if name := fmt.Sprintf("c%02d", i); strings.Join(queries[name], " ") != want {
			t.Errorf("cluster %s gets %q, want %s", name, queries[name], want)
		}
	}
}

// TestLaterMemberFails fails if a list lacked the objects of a later member, or if a failure used up a slot for lists.
func TestLaterMemberFails(t *testing.T) {
	const last = startedMembers
	pod := `{"metadata":{"name":"one","namespace":"x","resourceVersion":"7"}}`
	metadataLast := respond(200, `{"items":[`+pod+`],"kind":"PodList","apiVersion":"v1",`+
		`"metadata":{"resourceVersion":"9"}}`)
	// Of these, the gateway sends the first ones before the last member fails, so that the client gets a response.
	large := respond(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`+
		strings.Replace(pod, "{", `{"spec":{"x":"`+strings.Repeat("x", 4<<10)+`"},`, 1)+`]}`)
	cut := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	unavailable := refuse(503, "ServiceUnavailable", "busy")
	var requests atomic.Int32
	var answer atomic.Pointer[[]http.HandlerFunc] // to the requests for the list of the last member
	h := newWideFleet(t, last+1, func(w http.ResponseWriter, r *http.Request) {
		if answers := *answer.Load(); memberOf(r) == fmt.Sprintf("c%02d", last) && r.URL.Query().Get("limit") != "1" {
			answers[min(int(requests.Add(1)), len(answers))-1](w, r)
			return
		}
		large(w, r)
	})
	for name, tt := range map[string]struct {
		answers    []http.HandlerFunc
		requests   int32
		isComplete bool
	}{
		"busy at first": {[]http.HandlerFunc{unavailable, unavailable, large}, 3, true},
		"busy":          {[]http.HandlerFunc{unavailable}, 3, false},
		"cut at first":  {[]http.HandlerFunc{cut, large}, 2, true},
		"cut":           {[]http.HandlerFunc{cut}, 3, false},
		"expired":       {[]http.HandlerFunc{refuse(410, "Expired", "too old")}, 3, false},
		"another kind": {[]http.HandlerFunc{respond(200,
			`{"kind":"JobList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`)}, 1, false},
		"another format": {[]http.HandlerFunc{respond(200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1",`+
			`"metadata":{"resourceVersion":"9"},"columnDefinitions":[{"name":"Name"}],"rows":[]}`)}, 1, false},
		"metadata last": {[]http.HandlerFunc{metadataLast}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			answer.Store(&tt.answers)
			requests.Store(0)
			resp := h.Do("GET", "/fleet/api/v1/pods", nil, "")
			text, err := io.ReadAll(resp.Body)
			var l listing
			if err == nil {
				err = json.Unmarshal(text, &l)
			}
			isComplete := err == nil && len(l.Items) == last+1 && l.Metadata.ResourceVersion != ""
			if isComplete != tt.isComplete || err == nil && !isComplete || requests.Load() != tt.requests {
				t.Errorf("%d objects, %v, after %d requests", len(l.Items), err, requests.Load())
			}
		})
	}
}
