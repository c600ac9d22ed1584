// Package utf8tail finds characters of UTF-8 that the end of a piece of a stream cuts in two.
package utf8tail

import "unicode/utf8"

// Len returns the number of bytes at the end of p that begin a character without completing it.
func Len(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
