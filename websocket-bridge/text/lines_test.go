package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestWholeTextInEverySplit: no character is split, and no byte is lost.
func TestWholeTextInEverySplit(t *testing.T) {
	for _, all := range []string{"plain", "aé€𝄞z", "€€", "\xff", "a\xe2\x82"} {
		for i := range len(all) + 1 {
			for j := i; j <= len(all); j++ {
				var got strings.Builder
				var tail []byte
				pieces := []string{all[:i], all[i:j], all[j:]}
				for n, p := range pieces {
					var text []byte
					text, tail = wholeText(append(tail, p...), n == len(pieces)-1)
					got.Write(text)
				}
				if want := strings.ToValidUTF8(all, "\uFFFD"); got.String() != want {
					t.Fatalf("%q cut at %d and %d: %q, want %q", all, i, j, got.String(), want)
				}
			}
		}
	}
}

func FuzzWholeText(f *testing.F) {
	f.Add("aé€𝄞z\xff", uint8(3))
	f.Fuzz(func(t *testing.T, all string, cut uint8) {
		at := min(int(cut), len(all))
		first, tail := wholeText([]byte(all[:at]), false)
		second, left := wholeText(append(tail, all[at:]...), true)
		got := string(first) + string(second)
		if !utf8.ValidString(got) || len(left) > 0 {
			t.Errorf("%q: %q, %q left", all, got, left)
		}
		if utf8.ValidString(all) && got != all {
			t.Errorf("%q became %q", all, got)
		}
	})
}
