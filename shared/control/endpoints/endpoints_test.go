package endpoints

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestJSONPatchLimit fails if a small JSON patch can make an object that is many times as large.
func TestJSONPatchLimit(t *testing.T) {
	jsonpatch.AccumulatedCopySizeLimit = 0 // as the library has it
	if _, err := New(Config{Scheme: runtime.NewScheme()}); err != nil {
		t.Fatal(err)
	}
	doc := []byte(`{"a":"` + strings.Repeat("x", maxBody/2) + `"}`)
	copies := strings.Repeat(`,{"op":"copy","from":"/a","path":"/b"}`, 3)
	patch, err := jsonpatch.DecodePatch([]byte("[" + copies[1:] + "]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := patch.Apply(doc); err == nil {
		t.Error("it was applied")
	}
}

// TestWarnings fails if a response loses the last warning, or has a header that clients refuse.
func TestWarnings(t *testing.T) {
	recorder := httptest.NewRecorder()
	w := &response{ResponseWriter: recorder}
	w.warnings.AddWarning("", "first")
	w.warnings.AddWarning("", "two\nlines")
	for i := range 20 {
		for range 2 {
			w.warnings.AddWarning("", strconv.Itoa(i)+strings.Repeat("ä", 2*maxWarning))
		}
	}
	w.warnings.AddWarning("", "last")
	_, _ = w.Write(nil)
	size, got := 0, recorder.Header()["Warning"]
	for _, value := range got {
		size += len(value)
	}
	if size > maxWarnings || size < maxWarnings/2 || got[len(got)-1] != `299 - "last"` {
		t.Errorf("%d bytes, the last %q", size, got[len(got)-1])
	}
}

// TestLateWarning fails under the race detector if a handler that is beyond its time limit can touch the header that
// another goroutine writes.
func TestLateWarning(t *testing.T) {
	w := &response{ResponseWriter: httptest.NewRecorder()}
	var late sync.WaitGroup
	late.Go(func() { w.warnings.AddWarning("", "late") })
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGatewayTimeout)
	late.Wait()
}
