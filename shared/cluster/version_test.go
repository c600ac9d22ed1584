package cluster

import (
	"encoding/json"
	"errors"
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
			text, err := json.Marshal(map[string]string{"major": "1", "gitVersion": version})
			if err != nil {
				t.Fatal(err)
			}
			return json.Unmarshal(text, out)
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
