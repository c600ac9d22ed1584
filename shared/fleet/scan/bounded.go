package scan

import "errors"

// ErrTooMany is for text that has more values than it may.
var ErrTooMany = errors.New("it has too many values")

// Bounded returns nil if text has so many values at most, those within others counted too and what opens and closes at once counted twice, otherwise
// ErrTooMany, and ErrSyntax if a string of it does not end. It is for text that is decoded whole: bytes are no bound of what that takes, since two of
// them, "0,", may become an element of some hundred. Nothing else of the text is looked at, which need not be well-formed.
func Bounded(text []byte, most int) error {
	n := 1
	for i := 0; i < len(text) && n <= most; {
		switch text[i] {
		case '"':
			if i = str(text, i+1); i < 0 {
				return ErrSyntax
			}
			continue
		case ',', '{', '[':
			n++
		}
		i++
	}
	if n > most {
		return ErrTooMany
	}
	return nil
}
