package status

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestMessageOf: a page of a proxy must not become a message of the gateway.
func TestMessageOf(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, New(Unauthenticated, "", "the credential has expired"))
	for body, want := range map[string]string{
		w.Body.String(): "the credential has expired", `{"message":"blocked"}`: "", "<html>": "", "": "",
	} {
		if got := MessageOf([]byte(body)); got != want {
			t.Errorf("%q has the message %q, want %q", body, got, want)
		}
	}
}

// TestWarningIsShort: load balancers answer 502 in place of an error whose headers are too large.
func TestWarningIsShort(t *testing.T) {
	w := httptest.NewRecorder()
	WriteText(w, New(UnknownCluster, "a", "%s", strings.Repeat("ä", maxWarning)))
	got := w.Header().Get("Warning")
	if len(got) < maxWarning || len(got) > maxWarning+100 || !strings.Contains(got, "ä...") {
		t.Errorf("a Warning of %d bytes: %q", len(got), got)
	}
	if got := w.Body.Len(); got < 2*maxWarning {
		t.Errorf("the Status has only %d bytes", got)
	}
}
