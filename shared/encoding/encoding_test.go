package encoding

import (
	"net/http"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br, gzip": true, "gzip;q=0": false, "gzip; q=0.0": false,
		"gzip; q=0.5": true, "gzip;q=x": false, "deflate, br": false, "x-gzip": false,
	} {
		if got := AcceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: %t, want %t", value, got, want)
		}
	}
	if !AcceptsGzip(http.Header{"Accept-Encoding": {"br", "gzip"}}) {
		t.Error("the second header is ignored")
	}
}
