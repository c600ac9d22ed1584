package scan

import "errors"

// ErrTooMany is the error for text with too many values.
var ErrTooMany = errors.New("it has too many values")

// CheckValueCount returns ErrTooMany if text has more than limit values, including nested ones. It checks no syntax but
// the ends of strings. Call it before decoding: two bytes, "0,", may become a value of some hundred bytes.
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
