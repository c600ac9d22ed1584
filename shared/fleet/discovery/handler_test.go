package discovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestEqualDocumentsAreParsedOnce fails if each of hundreds of clusters of one version cost a parse, or if a cluster
// got the result of another document. It also fails if large results were kept.
func TestEqualDocumentsAreParsedOnce(t *testing.T) {
	parses := map[string]int{}
	parse := parseOnce(func(doc []byte) (string, error) {
		name := strings.TrimSpace(string(doc))
		parses[name]++
		if name == "" {
			return "", errors.New("empty")
		}
		return "parsed " + name, nil
	})
	const few, rounds = 16, 10
	padding := strings.Repeat(" ", maxParsed/few-len("document 15"))
	var distinct distinctBodies
	for range rounds {
		for i := range few + 2 {
			name := fmt.Sprintf("document %02d", i)
			if got, err := parse(distinct.intern([]byte(name + padding))); err != nil || got != "parsed "+name {
				t.Fatalf("%q, %v of %q", got, err, name)
			}
		}
		if _, err := parse(distinct.intern(nil)); err == nil {
			t.Fatal("an empty document is parsed")
		}
	}
	for i := range few + 2 {
		want := 1
		if i >= few {
			want = rounds
		}
		if name := fmt.Sprintf("document %02d", i); parses[name] != want {
			t.Errorf("%q is parsed %d times, want %d", name, parses[name], want)
		}
	}
}
