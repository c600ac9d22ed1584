package fleet_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// minCompressed is the size from which lists are compressed.
const minCompressed = 128 << 10

// zip returns text as a gzip stream.
func zip(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.Bytes()
}

// podsLike returns a list of size bytes or more that gzip reduces to about a seventh.
func podsLike(size int) string {
	var b strings.Builder
	random := rand.New(rand.NewPCG(1, 2)) // the same text in each run
	b.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&b, `{"metadata":{"namespace":"shop","name":"web-%x","uid":"%x-%x","labels":{"app":"web"}},`+
			`"spec":`, random.Uint64(), random.Uint64(), random.Uint64())
		_, _ = fmt.Fprintf(&b, `{"containers":[{"name":"web","image":"registry.example.com/web@sha256:%x%x","resources":{`+
			`"requests":{"cpu":"100m","memory":"%dMi"}},"terminationMessagePath":"/dev/termination-log"}],"nodeName":"n%d",`+
			`"serviceAccountName":"web","schedulerName":"default-scheduler"},"status":{"phase":"Running","podIP":"10.0.%d.%d"}}`,
			random.Uint64(), random.Uint64(), random.IntN(900), random.IntN(50), random.IntN(250), random.IntN(250))
	}
	b.WriteString("]}")
	return b.String()
}

// TestFleetGzip fails if a compressed list is garbled, or sent to a client that refuses it.
func TestFleetGzip(t *testing.T) {
	zipped := func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			respond(200, podList("10", "x/plain"))(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(zip(podList("10", "x/zipped")))
	}
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/plain")), zipped)
	l, resp := h.list("/fleet/api/v1/pods", http.Header{"Accept-Encoding": {"gzip"}})
	if l.names() != "plain@a zipped@b" || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("%q, %v", l.names(), resp.Header)
	}
	if l, _ := h.list("/fleet/api/v1/pods", http.Header{"Accept-Encoding": {"identity"}}); l.names() != "plain@a plain@b" {
		t.Errorf("%q", l.names())
	}
}

// TestFleetBrokenGzip fails if a compressed list that is broken looked complete, or if a valid one was refused.
func TestFleetBrokenGzip(t *testing.T) {
	text := podList("10", "x/one")
	whole := zip(text)
	const trailer = 8 // bytes: CRC and size
	wrong := bytes.Clone(whole)
	wrong[len(wrong)-trailer] ^= 1
	for name, tt := range map[string]struct {
		body []byte
		isOK bool
	}{
		"whole":           {whole, true},
		"two members":     {slices.Concat(zip(text[:20]), zip(text[20:])), true},
		"an empty member": {slices.Concat(whole, zip("")), true},
		"no end":          {whole[:len(whole)/2], false},
		"no trailer":      {whole[:len(whole)-trailer], false},
		"wrong CRC":       {wrong, false},
		"bytes after it":  {slices.Concat(whole, []byte("x")), false},
		"no gzip":         {[]byte(text), false},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(tt.body)
			})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/fleet/api/v1/pods", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", "gzip")
			isOK := false
			if resp, err := h.HTTPClient.Do(req); err == nil { // else the response broke off before its header was sent
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				isOK = err == nil && resp.StatusCode == http.StatusOK
			}
			if isOK != tt.isOK {
				t.Errorf("the list is complete: %v", isOK)
			}
		})
	}
}

// TestFleetCompresses fails if a client on a slow line waits longer than at the cluster itself.
func TestFleetCompresses(t *testing.T) {
	large := podsLike(2 * minCompressed)
	h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") == "1" {
			respond(200, podList("5", "x/one"))(w, r)
			return
		}
		respond(200, large)(w, r)
	})
	for name, tc := range map[string]struct {
		path, accepted, want string
	}{
		"large":          {"/fleet/api/v1/pods", "gzip", "gzip"},
		"a browser":      {"/fleet/api/v1/pods", "gzip, deflate, br, zstd", "gzip"},
		"small":          {"/fleet/api/v1/pods?limit=1", "gzip", ""},
		"refused":        {"/fleet/api/v1/pods", "identity", ""},
		"refused by q":   {"/fleet/api/v1/pods", "gzip;q=0", ""},
		"with a quality": {"/fleet/api/v1/pods", "br;q=1.0, GZIP ; q=0.5", "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := h.Do("GET", tc.path, http.Header{"Accept-Encoding": {tc.accepted}}, "")
			if got := resp.Header.Get("Content-Encoding"); resp.StatusCode != 200 || got != tc.want {
				t.Fatalf("%s with encoding %q, want %q", resp.Status, got, tc.want)
			}
			body := io.Reader(resp.Body)
			if tc.want == "gzip" {
				var err error
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			var l struct{ Items []struct{} }
			if err := json.NewDecoder(body).Decode(&l); err != nil || len(l.Items) == 0 {
				t.Error(len(l.Items), err)
			}
		})
	}
}
