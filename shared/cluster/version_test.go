package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestServerVersion: a member must not fill the stores, or write control characters to an operator's terminal.
func TestServerVersion(t *testing.T) {
	for version, isValid := range map[string]bool{
		"v1.36.3": true, "v1.29.4-gke.1043002": true, "": true, strings.Repeat("1", maxVersion): true,
		strings.Repeat("1", maxVersion+1): false, "\x1b]0;title\a": false, "v1\n": false, "vé": false,
	} {
		got, err := ServerVersion(func(out any) error {
			return json.Unmarshal(fmt.Appendf(nil, `{"major":"1","gitVersion":%s}`, mustJSON(t, version)), out)
		})
		if (err == nil) != isValid || isValid && got != version {
			t.Errorf("%q: %q, %v", version, got, err)
		}
	}
	failed := errors.New("no answer")
	if _, err := ServerVersion(func(any) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
