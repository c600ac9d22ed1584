package naming

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// readsAsJSON reports whether text is JSON that YAML parsers read identically, e.g. of kubectl apply --server-side.
func readsAsJSON(text []byte) bool {
	return new(scan.Scanner).Whole(text) && bytes.IndexFunc(text, isSpecial) < 0
}

// yamlToJSON returns YAML as JSON. It returns text that is also JSON unchanged.
//
// The parser builds nodes for the whole text at once, and one byte may become a node of some hundred bytes.
// countYAMLNodes therefore counts every character that may begin a node, even within strings. Constructs that repeat
// text are refused: an alias or the prefix of a tag may expand to one MiB each time.
func yamlToJSON(text []byte) ([]byte, error) {
	if readsAsJSON(text) {
		return text, nil
	}
	const remedy = "; send it as JSON"
	switch n, anchors, aliases := countYAMLNodes(text); {
	case !utf8.Valid(text):
		return nil, errors.New("it is not in UTF-8" + remedy)
	case n > maxValues:
		return nil, fmt.Errorf("%w; in YAML every possible separator counts as a value, also within text"+remedy, errTooMany)
	case anchors && aliases:
		return nil, errors.New("it has anchors and aliases, or text that looks like both" + remedy)
	case tagDirective().Match(text):
		return nil, errors.New("it defines tags by %TAG" + remedy)
	}
	return yaml.YAMLToJSON(text)
}

// isSpecial reports whether YAML reads a quoted character as a line break, or refuses it, where JSON does not.
func isSpecial(r rune) bool {
	return 0x7F <= r && r <= 0x9F || r == '\u2028' || r == '\u2029' || r == '\uFEFF' || r == '\uFFFE' || r == '\uFFFF'
}

// escapeForYAML escapes special characters, so that YAML parsers and JSON decoders read the same text.
func escapeForYAML(text []byte) []byte {
	if bytes.IndexFunc(text, isSpecial) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for _, r := range string(text) {
		if isSpecial(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// tagDirective matches a directive that defines tags. Directives begin a line, and text in a mapping never does.
var tagDirective = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?:^|[\n\r\u0085\u2028\u2029])\ufeff?%TAG")
})

// countYAMLNodes counts the characters that may begin a node. At most four nodes share one, as in ["a":b]. It also
// reports whether an anchor or an alias may occur.
func countYAMLNodes(text []byte) (n int, anchors, aliases bool) {
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
			if isBlank(after) {
				n++
			}
		case '&', '*':
			low := after | ' '
			named := 'a' <= low && low <= 'z' || '0' <= after && after <= '9' || after == '_' || after == '-'
			if named && (isBlank(before) || strings.IndexByte("[{,:?-", before) >= 0) {
				anchors, aliases = anchors || c == '&', aliases || c == '*'
			}
		}
		before = c
	}
	return n, anchors, aliases
}

// isBlank reports whether a byte may belong to white space. YAML also has white space beyond ASCII.
func isBlank(c byte) bool { return c <= ' ' || c >= utf8.RuneSelf }
