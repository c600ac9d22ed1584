package scan

import "errors"

// ErrTooMany is the error for text with too many values.
var ErrTooMany = errors.New("it has too many values")

// CheckValueCount returns ErrTooMany if text has more than limit values, including nested ones. An empty array or
// object counts as two. It returns ErrSyntax if a string does not end, and checks the syntax no further.
//
// Call it before decoding text as a whole: two bytes, "0,", may become an element of some hundred bytes.
func CheckValueCount(text []byte, limit int) error {
	n := 1
	for i := 0; i < len(text) && n <= limit; {
		switch text[i] {
		case '"':
			if i = stringEnd(text, i+1); i < 0 {
				return ErrSyntax
			}
			continue
		case ',', '{', '[':
			n++
		}
		i++
	}
	if n > limit {
		return ErrTooMany
	}
	return nil
}
