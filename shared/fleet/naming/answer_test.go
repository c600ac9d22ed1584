package naming

import "testing"

// TestEscapedNamesAreScanned fails if a cluster could hide a name of the form name@cluster by another form of its text.
func TestEscapedNamesAreScanned(t *testing.T) {
	for text, want := range map[string]bool{
		`{"name":"a@b"}`: true, `{"name":"a\u0040b"}`: true, `{"name":"a@\u0062"}`: true, `{"name":"a@b\u0062"}`: true,
		`{"name":"a"}`: false, `{"mail":"a@example.com"}`: false, `{"image":"a@sha256:1"}`: false, `{"x":"@`: false,
	} {
		if got := mayBeQualified([]byte(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
