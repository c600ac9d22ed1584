package discovery

import (
	"errors"
	"fmt"
	"testing"
)

// TestEqualDocumentsAreParsedOnce fails if each of hundreds of clusters of one version cost a parse, or if a cluster
// got the result of another document.
func TestEqualDocumentsAreParsedOnce(t *testing.T) {
	parses := map[string]int{}
	parse := once(func(doc []byte) (string, error) {
		parses[string(doc)]++
		if len(doc) == 0 {
			return "", errors.New("empty")
		}
		return "parsed " + string(doc), nil
	})
	var distinct distinctBodies
	for range 10 {
		for i := range maxParsed + 2 {
			doc := fmt.Sprint("document ", i)
			if got, err := parse(distinct.add([]byte(doc))); err != nil || got != "parsed "+doc {
				t.Fatalf("%q, %v of %q", got, err, doc)
			}
		}
		if _, err := parse(distinct.add(nil)); err == nil {
			t.Fatal("an empty document is parsed")
		}
	}
	for i := range maxParsed {
		if doc := fmt.Sprint("document ", i); parses[doc] != 1 {
			t.Errorf("%q is parsed %d times", doc, parses[doc])
		}
	}
}
