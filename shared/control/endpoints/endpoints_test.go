package endpoints

import (
	"net/http"
	"strings"
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

func TestWarnings(t *testing.T) {
	h := http.Header{}
	w := &warnings{header: h}
	w.AddWarning("", "one")
	w.AddWarning("agent", "one")
	w.AddWarning("", "two\nlines")
	for i := range 8 {
		w.AddWarning("", strings.Repeat("x", maxWarnings/4)+string(rune('a'+i)))
	}
	got := h["Warning"]
	if len(got) != 4 || got[0] != `299 - "one"` {
		t.Errorf("%d warnings, the first %q", len(got), got[0])
	}
}
