package scan

import (
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// Whole reports whether text is one value in UTF-8.
func (s *Scanner) Whole(text []byte) bool {
	s.Reset()
	end, err := s.Value(text)
	return err == nil && Space(text, end) == len(text) && utf8.Valid(text)
}

// Repair replaces each byte that is not UTF-8 with U+FFFD, as encoding/json does. It returns valid text unchanged.
func Repair(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		out, text = utf8.AppendRune(out, r), text[size:]
	}
	return out
}

// Lookup returns the value at a path of field names in an object, or nil. Names match exactly, because decoders that
// fold case can be deceived. The last of equal names counts.
func Lookup(object []byte, path ...string) []byte {
	var s Scanner
	for _, name := range path {
		var value []byte
		for f := range s.Fields(object, Space(object, 0)) {
			if f.Is(name) {
				value = object[f.At:f.End]
			}
		}
		object = value
	}
	return object
}

// Text returns the text of a string. It returns "" for any other value.
func Text(value []byte) string {
	if isPlain(value) {
		return string(value[1 : len(value)-1])
	}
	var text string
	_ = json.Unmarshal(value, &text) // text stays "" on an error
	return text
}

// isPlain reports whether a value is a string of printable ASCII without escapes, as nearly all names are.
func isPlain(value []byte) bool {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return false
	}
	for _, c := range value[1 : len(value)-1] {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Fields returns the fields of the object at text[at], up to a syntax error. The scanner may be used during the
// iteration.
func (s *Scanner) Fields(text []byte, at int) iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for i, more := firstPart(text, at, '{'); more; i, more = nextPart(text, i) {
			var f Field
			from := i
			if i = s.valueEnd(text, i); i < 0 || text[from] != '"' {
				return
			}
			f.Name = text[from:i]
			if i = Space(text, i); i == len(text) || text[i] != ':' {
				return
			}
			f.At = Space(text, i+1)
			if i = s.valueEnd(text, f.At); i < 0 {
				return
			}
			if f.End = i; !yield(f) {
				return
			}
		}
	}
}

// Elements returns the start and end of each element of the array that begins at text[at], up to a syntax error.
func (s *Scanner) Elements(text []byte, at int) iter.Seq2[int, int] {
	return func(yield func(at, end int) bool) {
		for i, more := firstPart(text, at, '['); more; i, more = nextPart(text, i) {
			from := i
			if i = s.valueEnd(text, i); i < 0 || !yield(from, i) {
				return
			}
		}
	}
}

func (s *Scanner) valueEnd(text []byte, at int) int {
	s.Reset()
	end, err := s.Value(text[at:])
	if err != nil {
		return invalid
	}
	return at + end
}

func firstPart(text []byte, at int, open byte) (i int, ok bool) {
	if at == len(text) || text[at] != open {
		return 0, false
	}
	i = Space(text, at+1)
	return i, i < len(text) && text[i] != open+2 // "}" or "]"
}

func nextPart(text []byte, i int) (at int, ok bool) {
	if i = Space(text, i); i == len(text) || text[i] != ',' {
		return 0, false
	}
	at = Space(text, i+1)
	return at, at < len(text)
}
