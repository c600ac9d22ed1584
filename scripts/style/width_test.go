package main

import (
	"slices"
	"strings"
	"testing"
)

// TestLongLines fails if prose may be wider than the documentation, or if a line that cannot be wrapped is refused.
func TestLongLines(t *testing.T) {
	word, text := strings.Repeat("w", maxColumns-1), strings.Repeat("é ", maxColumns/2)
	source := strings.Join([]string{
		text, text + "x", "- " + text, "1. " + text,
		"| " + text + " |", "![" + text + "](a.svg)", "[a]: https://example.com/" + word + " \"a\"", "- " + word + "w",
		"  " + word,
		"```sh", text + text, "```", text + text,
	}, "\n")
	if got, want := longLines([]byte(source)), []int{2, 3, 4, 13}; !slices.Equal(got, want) {
		t.Errorf("lines %v, want %v", got, want)
	}
}
