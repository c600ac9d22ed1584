package naming

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// readsAsJSON reports whether text is JSON in which a YAML parser reads the same. kubectl apply --server-side sends
// such.
func readsAsJSON(text []byte) bool {
	return new(scan.Scanner).Whole(text) && bytes.IndexFunc(text, special) < 0
}

// jsonOf returns YAML as JSON, at most some times as long. JSON that reads the same is returned as it is.
//
// Other YAML is rare and written by hand, so it is limited to what is safe without a parser of our own. The parser
// makes nodes of the whole text before it shows any, and a byte may become a node of some hundred. inYAML counts the
// bytes that may begin a node, wherever they stand, since only a parser knows where text begins and ends. A file of 1
// MiB in a ConfigMap may still have a comma every six bytes. Whatever repeats a part of the text is refused: an alias
// may be a MiB each time, and so may a tag with a prefix.
func jsonOf(text []byte) ([]byte, error) {
	if readsAsJSON(text) {
		return text, nil
	}
	const way = "; send it as JSON"
	switch n, anchors, aliases := inYAML(text); {
	case !utf8.Valid(text):
		return nil, errors.New("it is not in UTF-8" + way)
	case n > maxValues:
		return nil, fmt.Errorf("%w; in YAML every possible separator counts as a value, also within text"+way, errTooMany)
	case anchors && aliases:
		return nil, errors.New("it has anchors and aliases, or text that looks like both" + way)
	case tagDirective.Match(text):
		return nil, errors.New("it defines tags by %TAG" + way)
	}
	return yaml.YAMLToJSON(text)
}

// special reports whether YAML reads a character in quotes otherwise than JSON: as a line break, or not at all unless
// it is escaped.
func special(r rune) bool {
	return 0x7F <= r && r <= 0x9F || r == '\u2028' || r == '\u2029' || r == '\uFEFF' || r == '\uFFFE' || r == '\uFFFF'
}

// escapeForYAML escapes the special characters of JSON, which stand in strings only. A YAML parser reads the result as
// JSON decoders do.
func escapeForYAML(text []byte) []byte {
	if bytes.IndexFunc(text, special) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for _, r := range string(text) {
		if special(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// tagDirective matches a directive that defines tags. It stands at the beginning of a line, which text in a mapping
// never does.
var tagDirective = regexp.MustCompile("(?:^|[\n\r\u0085\u2028\u2029])\ufeff?%TAG")

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
