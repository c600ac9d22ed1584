package channels

import "testing"

// TestProtocols fails if a client gets the messages or the result of a session in the form of another protocol.
func TestProtocols(t *testing.T) {
	type form struct{ isBase64, hasStatus bool }
	want := map[string]form{
		"v5.channel.k8s.io": {false, true}, "v4.channel.k8s.io": {false, true}, "v4.base64.channel.k8s.io": {true, true},
		"channel.k8s.io": {false, false}, "base64.channel.k8s.io": {true, false}, "": {false, false},
	}
	for _, p := range append([]string{""}, Protocols...) {
		if got := (form{IsBase64(p), HasStatus(p)}); got != want[p] {
			t.Errorf("%q: %+v, want %+v", p, got, want[p])
		}
		delete(want, p)
	}
	if len(want) > 0 {
		t.Errorf("Protocols lacks %v", want)
	}
}
