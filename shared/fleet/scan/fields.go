package scan

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Field is a field of an object.
type Field struct {
	Name    []byte // as it stands, with its quotes
	At, End int    // where its value is
}

// Is reports whether that is the field's name, however it is written.
func (f Field) Is(name string) bool {
	if bytes.IndexByte(f.Name, '\\') < 0 {
		return string(f.Name[1:len(f.Name)-1]) == name
	}
	own, err := jsontext.AppendUnquote(nil, f.Name)
	return err == nil && string(own) == name
}

// Whole reports whether text is one value in UTF-8.
func (s *Scanner) Whole(text []byte) bool {
	s.Reset()
	end, err := s.Value(text)
	return err == nil && Space(text, end) == len(text) && utf8.Valid(text)
}

// Repair returns text with U+FFFD in place of each byte that is not UTF-8, as encoding/json decodes it. Valid text is
// returned as it is.
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

// Lookup returns the value that the names of path lead to in an object; nil if there is none. Names match exactly,
// since decoders that fold case can be deceived. The last of equal names counts.
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

// Text returns the string that a value is; "" for any other value.
func Text(value []byte) string {
	var text string
	_ = json.Unmarshal(value, &text) // "" stays
	return text
}

// Fields gives the fields of the object that begins at text[at]; none of what is no object. The text must be well-formed: where it is not,
// they end. The scanner may be used for other text meanwhile.
func (s *Scanner) Fields(text []byte, at int) iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for i, more := first(text, at, '{'); more; i, more = next(text, i) {
			var f Field
			from := i
			if i = s.after(text, i); i < 0 || text[from] != '"' {
				return
			}
			f.Name = text[from:i]
			if i = Space(text, i); i == len(text) || text[i] != ':' {
				return
			}
			f.At = Space(text, i+1)
			if i = s.after(text, f.At); i < 0 {
				return
			}
			if f.End = i; !yield(f) {
				return
			}
		}
	}
}

// Elements gives where the elements are of the array that begins at text[at], as Fields does.
func (s *Scanner) Elements(text []byte, at int) iter.Seq2[int, int] {
	return func(yield func(at, end int) bool) {
		for i, more := first(text, at, '['); more; i, more = next(text, i) {
			from := i
			if i = s.after(text, i); i < 0 || !yield(from, i) {
				return
			}
		}
	}
}

// after returns the end of the value at text[at], a negative number if it has none.
func (s *Scanner) after(text []byte, at int) int {
	s.Reset()
	end, err := s.Value(text[at:])
	if err != nil {
		return wrong
	}
	return at + end
}

// first returns where the first part begins of what opens so at text[at], if there is any.
func first(text []byte, at int, open byte) (i int, some bool) {
	if at == len(text) || text[at] != open {
		return 0, false
	}
	i = Space(text, at+1)
	return i, i < len(text) && text[i] != open+2 // "}" and "]"
}

// next returns where the part begins that follows the one before i, if one does.
func next(text []byte, i int) (at int, more bool) {
	if i = Space(text, i); i == len(text) || text[i] != ',' {
		return 0, false
	}
	at = Space(text, i+1)
	return at, at < len(text)
}
