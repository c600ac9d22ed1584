package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// pagedMember has a small pod and two large ones. It records the queries of its lists, and counts the lists that it is
// sending.
type pagedMember struct {
	mu      *sync.Mutex
	sending *int
	queries []string
}

func (m *pagedMember) serve(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.queries = append(m.queries, r.URL.RawQuery)
	*m.sending++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		*m.sending--
	}()
	from, to, more := 0, 3, ""
	switch query := r.URL.Query(); {
	case query.Get("continue") == "rest":
		from = 1
	case query.Get("limit") == "1":
		to, more = 1, `,"continue":"rest","remainingItemCount":2`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"%s},"items":[`, more)
	for i := from; i < to; i++ {
		_, _ = fmt.Fprintf(w, `%s{"metadata":{"name":"p%d","namespace":"x","resourceVersion":"7"},"spec":{"x":"%s"}}`,
			strings.Repeat(",", min(i-from, 1)), i, strings.Repeat("x", i*200<<10))
	}
	_, _ = io.WriteString(w, "]}\n")
}

// TestLaterMembersSendOneObjectFirst fails if the responses of members waited while a list reads others: kube-apiserver
// ends them after a minute.
func TestLaterMembersSendOneObjectFirst(t *testing.T) {
	const all, started = 90, 80
	var mu sync.Mutex
	sending := 0
	h := newGateway(t, gatewaytest.Options{})
	h.AddRegistry("pods", allPods)
	clusters := make([]*pagedMember, all)
	for i := range clusters {
		clusters[i] = &pagedMember{mu: &mu, sending: &sending}
		m := clustertest.NewMember(t, clusters[i].serve)
		h.AddCluster(fmt.Sprintf("c%02d", i), m.Kubeconfig(`{token: t}`))
	}
	resp := h.Do("GET", "/fleet/api/v1/pods?labelSelector=a&resourceVersion=0", nil, "")
	waittest.Until(t, "only the first members are sending", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return sending == started
	})
	var l listing
	if err := json.NewDecoder(resp.Body).Decode(&l); err != nil || resp.Header["Warning"] != nil {
		t.Fatalf("%v, warnings %q", err, resp.Header["Warning"])
	}
	objects := map[string]bool{}
	for _, o := range l.Items {
		objects[o.Metadata.Name+o.Metadata.Annotations["resource.karmada.io/cached-from-cluster"]] = true
	}
	if len(objects) != 3*all || len(l.Items) != 3*all {
		t.Errorf("%d objects, %d distinct", len(l.Items), len(objects))
	}
	mu.Lock()
	defer mu.Unlock()
	for i, c := range clusters {
		want := "labelSelector=a&pretty=false&resourceVersion=0"
		if i >= started {
			want = "labelSelector=a&limit=1&pretty=false continue=rest&labelSelector=a&pretty=false"
		}
		if got := strings.Join(c.queries, " "); got != want {
			t.Errorf("cluster %d gets %s, want %s", i, got, want)
		}
	}
}
