package fleet_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestListAllocations fails if a list of the fleet allocates more than before: for the request, or for each object. The
// limits are a third and more above the figures of this version, which include two clusters and the client.
func TestListAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	for _, encoding := range []string{"identity", "gzip"} {
		t.Run(encoding, func(t *testing.T) { checkListAllocations(t, encoding) })
	}
}

func checkListAllocations(t *testing.T, encoding string) {
	const (
		few, many    = 150, 1650 // objects of each of two clusters; only the larger list is compressed
		calls        = 10
		maxCall      = 2100  // allocations of a list of few objects
		maxCallBytes = 1.3e6 // their bytes
		maxObject    = 2.8   // further allocations for each object
		maxBytes     = 500   // further bytes for each object
	)
	h, _ := newFleet(t, gatewaytest.Options{}, podsOfSizes("a", few, many), podsOfSizes("b", few, many))
	list := func(namespace string, n int) {
		resp := h.Do("GET", "/fleet/api/v1/namespaces/"+namespace+"/pods", http.Header{"Accept-Encoding": {encoding}}, "")
		size, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		isGzip := resp.Header.Get("Content-Encoding") == "gzip"
		if err != nil || isGzip != (encoding == "gzip" && n == many) || !isGzip && size < int64(2*n*200) {
			t.Fatalf("%s: %d bytes, %v, %v", resp.Status, size, resp.Header, err)
		}
	}
	cost := func(namespace string, n int) (allocations, bytes float64) {
		list(namespace, n) // fills caches
		return alloctest.PerCall(calls, func() { list(namespace, n) })
	}
	fewObjects, fewBytes := cost(strconv.Itoa(few), few)
	manyObjects, manyBytes := cost(strconv.Itoa(many), many)
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

// podsOfSizes returns the handler of a cluster with n pods in the namespace n, for each of sizes. It compresses lists
// for clients that accept gzip.
func podsOfSizes(member string, sizes ...int) http.HandlerFunc {
	plain, zipped := map[string][]byte{}, map[string][]byte{}
	for _, n := range sizes {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(`{"metadata":{"name":"%s-%d","namespace":"%d","resourceVersion":"7"},"spec":{"x":%q}}`,
				member, i, n, strings.Repeat("x", 200))
		}
		text := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[` +
			strings.Join(items, ",") + "]}\n"
		path := fmt.Sprintf("/api/v1/namespaces/%d/pods", n)
		plain[path], zipped[path] = []byte(text), zip(text)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := plain[r.URL.Path]
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			body = zipped[r.URL.Path]
		}
		_, _ = w.Write(body)
	}
}
