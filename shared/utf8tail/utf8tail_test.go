package utf8tail

import "testing"

// TestLen fails if a stream that is read in pieces loses a character, or waits for bytes that complete none.
func TestLen(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want int
	}{
		"nothing":                  {"", 0},
		"ASCII":                    {"a", 0},
		"a whole character":        {"a\u20ac", 0},
		"one byte of two":          {"a\xc3", 1},
		"two bytes of three":       {"a\xe2\x82", 2},
		"three bytes of four":      {"\xf0\x9f\x98", 3},
		"no start":                 {"\x82\x82\x82\x82", 0},
		"a start that is none":     {"a\xff", 0},
		"bytes that no start fits": {"\xe2\xff", 0},
		"an invalid second byte":   {"\xe0\x80", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Len([]byte(tt.in)); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}
