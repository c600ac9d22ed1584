package expansion

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "a", "EMPTY": "", "REF": "$(A)"}
	tests := map[string]string{
		"":                   "",
		"plain":              "plain",
		"$(A)":               "a",
		"x$(A)y$(A)":         "xaya",
		"$(EMPTY)":           "",
		"$(UNKNOWN)":         "$(UNKNOWN)",
		"$$(A)":              "$(A)",
		"$$$(A)":             "$a",
		"$$":                 "$",
		"$":                  "$",
		"$A ${A}":            "$A ${A}",
		"$(A":                "$(A",
		"$(REF)":             "$(A)", // inserted values are not expanded
		"$(UNKNOWN $(A))":    "$(UNKNOWN $(A))",
		"100$, $(A), $(A) $": "100$, a, a $",
	}
	for s, want := range tests {
		if got := Expand(s, values); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$($(B)", "a")
	f.Fuzz(func(t *testing.T, s, value string) {
		// Doubling every dollar sign escapes everything.
		if got := Expand(strings.ReplaceAll(s, "$", "$$"), map[string]string{"A": value}); got != s {
			t.Errorf("%q: got %q", s, got)
		}
		if strings.Contains(s, "$") || Expand(s, map[string]string{"A": value}) == s {
			return
		}
		t.Errorf("%q changed without a reference", s)
	})
}
