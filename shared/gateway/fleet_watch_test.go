package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
)

// TestFleetWatchBadEvent holds: an event that cannot be passed on costs its cluster, until that sends it well: the others go on, and no
// version covers it before.
func TestFleetWatchBadEvent(t *testing.T) {
	event := func(name, version, annotations string) string {
		return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"x","resourceVersion":%q,"annotations":%s}}}`+"\n", name, version, annotations)
	}
	const good = "{}"
	for name, bad := range map[string]string{
		"annotations that are none":   "[]",
		"annotations that come twice": `{},"annotations":{}`,
		"metadata that comes twice":   `{}},"metadata":{"name":"x"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 100) // from which versions b is watched
			var tries atomic.Int32
			later := make(chan struct{})
			watches := func(send func(flush func(string), version string)) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Get("watch") == "" {
						sends(200, podList("5"))(w, r)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					send(func(text string) {
						_, _ = io.WriteString(w, text)
						_ = http.NewResponseController(w).Flush()
					}, r.URL.Query().Get("resourceVersion"))
					<-r.Context().Done()
				}
			}
			h, _ := fleetOf(t, watches(func(flush func(string), _ string) {
				flush("")
				<-later // b's was refused
				flush(event("of-a", "6", good))
			}), watches(func(flush func(string), version string) {
				asked <- version
				if version == "5" {
					flush(event("first", "7", good))
				}
				switch tries.Add(1) {
				case 1:
					flush(event("bad", "8", bad))
				case 2:
					close(later)
					flush(event("bad", "8", bad))
				default:
					flush(event("mended", "8", good))
				}
			}))
			l, _ := h.list("/fleet/api/v1/pods", nil)
			resp := h.do("GET", "/fleet/api/v1/pods?watch=1&resourceVersion="+l.Metadata.ResourceVersion, nil, "")
			lines := bufio.NewReader(resp.Body)
			var got []string
			var last string
			mended := false // b's event 8 has been delivered
			for range 3 {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					t.Fatalf("after %q: %v", got, err)
				}
				var e struct {
					Type   string
					Object struct {
						Metadata struct{ Name, ResourceVersion string }
					}
				}
				if err := json.Unmarshal(line, &e); err != nil {
					t.Fatal(err)
				}
				got, last = append(got, e.Type+" "+e.Object.Metadata.Name), e.Object.Metadata.ResourceVersion
				mended = mended || e.Object.Metadata.Name == "mended"
				v, err := cursor.ParseVersion(last)
				covers := false
				for _, own := range v {
					covers = covers || own == "8"
				}
				if err != nil || covers != mended {
					t.Errorf("%s has version %v, %v", got[len(got)-1], v, err)
				}
			}
			if text := strings.Join(got, ", "); text != "ADDED first, ADDED of-a, ADDED mended" && text != "ADDED first, ADDED mended, ADDED of-a" {
				t.Error(text)
			}
			if from := []string{<-asked, <-asked, <-asked}; strings.Join(from, " ") != "5 7 7" {
				t.Errorf("b is watched from %q", from)
			}
		})
	}
}
