package secrets

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Secrets Manager allows 50 tags, some of them for other programs, with keys of at most 128 characters.
const (
	MaxLabels   = 40
	maxName     = 253
	maxLabelKey = 127
)

// labelREs is compiled on first use, because compiling is slow and most functions do not need it.
var labelREs = sync.OnceValues(func() (key, value *regexp.Regexp) {
	return regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`),
		regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
})

// ValidName returns ErrInvalid unless name has at most 253 bytes, in segments separated by '/'. A segment has
// lower-case letters, digits, '-' and '.', with a letter or digit at both ends.
func ValidName(name string) error {
	invalid := len(name) > maxName || strings.Contains(name, "..")
	for segment := range strings.SplitSeq(name, "/") {
		invalid = invalid || !validSegment(segment)
	}
	if invalid {
		return fmt.Errorf(
			"%w: name %.64q: want at most %d lower case letters, digits, '-', '.' and '/', such as clusters/member1",
			ErrInvalid, name, maxName)
	}
	return nil
}

func validSegment(s string) bool {
	return s != "" && strings.Trim(s, "-.") == s && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// ValidLabels returns ErrInvalid unless there are at most MaxLabels labels in Kubernetes syntax. Keys have at most 127
// bytes.
func ValidLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%w: %d labels: want at most %d", ErrInvalid, len(labels), MaxLabels)
	}
	keyRE, valueRE := labelREs()
	for k, v := range labels {
		if len(k) > maxLabelKey || !keyRE.MatchString(k) || !valueRE.MatchString(v) {
			return fmt.Errorf(
				"%w: label %.150q=%.64q: want Kubernetes label syntax, such as env=prod, and a key of at most %d bytes",
				ErrInvalid, k, v, maxLabelKey)
		}
	}
	return nil
}

// ValidValue returns ErrInvalid unless v has between 1 and MaxValue bytes.
func ValidValue(v Value) error {
	if n := len(v.Reveal()); n == 0 || n > MaxValue {
		return fmt.Errorf("%w: value of %d bytes: want 1 to %d", ErrInvalid, n, MaxValue)
	}
	return nil
}
