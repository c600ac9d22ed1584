package naming

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// jsonOf returns YAML as JSON, at most some times as long. What is JSON already, as kubectl apply --server-side sends it, is returned as it is.
//
// The rest is rare and written by hand, and so held to what is safe without a parser of our own: the one there is makes nodes of the whole text before
// it shows any, and a byte may be a node of some hundred. Nodes are bounded by what may begin them, wherever that stands, since only a parser knows where
// text in YAML begins and ends: a file of 1 MiB in a ConfigMap may still have a comma every six bytes. What repeats a part of the text is not taken at
// all: an alias may be a MiB each time, and so may a tag with a prefix.
func jsonOf(text []byte) ([]byte, error) {
	if new(scan.Scanner).Whole(text) {
		return text, nil
	}
	const way = "; send it as JSON"
	switch n, anchors, aliases := inYAML(text); {
	case !utf8.Valid(text):
		return nil, errors.New("it is not in UTF-8" + way)
	case n > maxValues:
		return nil, fmt.Errorf("%w; in YAML all that may separate values is counted, in text too"+way, errTooMany)
	case anchors && aliases:
		return nil, errors.New("it has anchors and aliases, or text that looks like both" + way)
	case bytes.Contains(text, []byte("%TAG")):
		return nil, errors.New("it has tags of its own, by %TAG" + way)
	}
	return yaml.YAMLToJSON(text)
}

// inYAML counts what may begin a node in YAML, and says whether anything may be an anchor or an alias. No more than four nodes have one beginning in common:
// [a: b] is a sequence of a mapping of two.
func inYAML(text []byte) (n int, anchors, aliases bool) {
	before := byte('\n')
	for i, c := range text {
		after := byte('\n')
		if i+1 < len(text) {
			after = text[i+1]
		}
		switch c {
		case ',', '[', '{':
			n++
		case '-', '?', ':':
			if blank(after) {
				n++
			}
		case '&', '*':
			low := after | ' '
			named := 'a' <= low && low <= 'z' || '0' <= after && after <= '9' || after == '_' || after == '-'
			if named && (blank(before) || strings.IndexByte("[{,:?-", before) >= 0) {
				anchors, aliases = anchors || c == '&', aliases || c == '*'
			}
		}
		before = c
	}
	return n, anchors, aliases
}

// blank reports whether a byte may be one of white space: some of that in YAML is beyond ASCII.
func blank(c byte) bool { return c <= ' ' || c >= utf8.RuneSelf }
