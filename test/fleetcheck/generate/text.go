package generate

import "strings"

// oddTexts are legitimate values that parsers and writers of JSON, YAML and names tend to change.
var oddTexts = []string{
	"", " ", "a\u0085b", "a\u2028b\u2029c", "del\u007f", "c1\u0080", "\ufffe", "\uffff", "\ufeffbom",
	"\U0001f600", "\u212aind",
	"tab\there", "line\nbreak", "cr\r\nlf", "trailing \n\n", "%TAG ! tag:x", "%YAML 1.1", "---", "...",
	"# no comment", "a: b",
	"- a", "&anchor", "*alias", "!!binary aGk=", "yes", "NO", "on", "null", "~", "0x1F", "0o17",
	"1_000", "1e3", ".inf", ".nan",
	"12:30:45", "2001-12-14", "{", "[", "}", "]", `"`, `'`, `\`, `\u0041`, `</script>`, "<&>", "a\x00b", "\x01\x1f", "a@b",
	"@", "@member1", "web@member1", "shop@member2", "x@y@member3", "é", "e\u0301", "ﬀ", "\u202eabc", "\u00ad", "=", "<<",
}

// Text returns a random text: plain, odd, or a mixture.
func (s *Source) Text() string {
	switch s.IntN(4) {
	case 0:
		return s.Label()
	case 1:
		return Pick(s, oddTexts)
	case 2:
		return s.Label() + Pick(s, oddTexts) + s.Label()
	}
	var b strings.Builder
	for range s.IntN(12) {
		r := rune(s.IntN(0x3000))
		if s.Chance(8) {
			r = rune(0x10000 + s.IntN(0xffff))
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Label returns a random DNS label of at most 9 characters.
func (s *Source) Label() string {
	const letters, all = "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz0123456789"
	b := []byte{letters[s.IntN(len(letters))]}
	for range s.IntN(8) {
		b = append(b, all[s.IntN(len(all))])
	}
	return string(b)
}
