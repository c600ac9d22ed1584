package review

import (
	"fmt"
	"strings"
)

// Texts of members are shortened to maxText bytes, and all after the first maxTexts are only counted.
const (
	maxText  = 400
	maxTexts = 16
)

func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// texts joins the first texts that are added. The zero value is empty.
type texts struct {
	kept []string
	more int
}

func (t *texts) add(text string) {
	if len(t.kept) == maxTexts {
		t.more++
		return
	}
	t.kept = append(t.kept, shorten(text))
}

// String implements fmt.Stringer.
func (t *texts) String() string {
	out := strings.Join(t.kept, "; ")
	if t.more > 0 {
		out += fmt.Sprintf("; and %d more", t.more)
	}
	return out
}
