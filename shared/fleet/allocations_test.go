package fleet_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestListAllocations fails if a list of the fleet allocates more than before: for the request, or for each object. The
// limits are a third above the figures of this version, which include two clusters and the client.
func TestListAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	const (
		few, many    = 200, 1700 // objects of each of two clusters
		calls        = 10
		maxCall      = 2600  // allocations of a list of few objects
		maxCallBytes = 1.3e6 // their bytes
		maxObject    = 3.3   // further allocations for each object
		maxBytes     = 500   // further bytes for each object
	)
	pods := func(member string) http.HandlerFunc {
		bodies := map[string]string{}
		for namespace, n := range map[string]int{"few": few, "many": many} {
			items := make([]string, n)
			for i := range items {
				items[i] = fmt.Sprintf(`{"metadata":{"name":"%s-%d","namespace":%q,"resourceVersion":"7"},"spec":{"x":%q}}`,
					member, i, namespace, strings.Repeat("x", 200))
			}
			bodies["/api/v1/namespaces/"+namespace+"/pods"] = `{"kind":"PodList","apiVersion":"v1","metadata":` +
				`{"resourceVersion":"9"},"items":[` + strings.Join(items, ",") + "]}\n"
		}
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, bodies[r.URL.Path])
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, pods("a"), pods("b"))
	list := func(namespace string, n int) {
		resp := h.Do("GET", "/fleet/api/v1/namespaces/"+namespace+"/pods", nil, "")
		size, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || size < int64(2*n*200) {
			t.Fatalf("%s: %d bytes, %v", resp.Status, size, err)
		}
	}
	cost := func(namespace string, n int) (allocations, bytes float64) {
		list(namespace, n) // fills caches
		return alloctest.PerCall(calls, func() { list(namespace, n) })
	}
	fewObjects, fewBytes := cost("few", few)
	manyObjects, manyBytes := cost("many", many)
	const more = 2 * (many - few)
	eachObject, eachBytes := (manyObjects-fewObjects)/more, (manyBytes-fewBytes)/more
	if fewObjects > maxCall || fewBytes > maxCallBytes {
		t.Errorf("a list makes %.0f allocations of %.0f bytes, want at most %d of %.0f", fewObjects, fewBytes, maxCall,
			maxCallBytes)
	}
	if eachObject > maxObject || eachBytes > maxBytes {
		t.Errorf("each object makes %.3f allocations of %.0f bytes, want at most %.1f of %d", eachObject, eachBytes,
			maxObject, maxBytes)
	}
}
