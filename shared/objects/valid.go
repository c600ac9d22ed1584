package objects

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxKey = 512

// validResource reports whether s has lower-case letters, digits, '-' and '.', with a letter or digit at both ends.
func validResource(s string) bool {
	return s != "" && strings.Trim(s, "-.") == s && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// ValidKey returns ErrInvalid unless key has the form resource/name. A name has no control characters and no empty, "."
// or ".." segments. Names of RBAC roles may contain nearly any other character.
func ValidKey(key string) error {
	resource, name, _ := strings.Cut(key, "/")
	if len(key) > maxKey || !validResource(resource) || !printable(name) {
		return fmt.Errorf("%w: key %.128q: want resource/name, such as clusters/member1, in at most %d bytes", ErrInvalid,
			key, maxKey)
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("%w: key %.128q: want no empty, . or .. segment", ErrInvalid, key)
		}
	}
	return nil
}

// SplitPrefix splits the prefix of a list into the resource and the start of the name, or returns ErrInvalid.
func SplitPrefix(prefix string) (resource, name string, err error) {
	resource, name, ok := strings.Cut(prefix, "/")
	if !ok || len(prefix) > maxKey || !validResource(resource) || !printable(name) {
		return "", "",
			fmt.Errorf("%w: prefix %.128q: want a resource and a slash at least, such as clusters/", ErrInvalid, prefix)
	}
	return resource, name, nil
}

// ValidValue returns ErrInvalid if value has more than MaxValue bytes.
func ValidValue(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: value of %d bytes: want at most %d", ErrInvalid, len(value), MaxValue)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Continue is the position of a list. Clients receive it as an opaque string.
type Continue struct {
	Revision uint64 // revision of the first page, and so of all pages
	After    string // the last key that was returned
}

func (c Continue) String() string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendUint(nil, c.Revision, 10)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(c.After))
}

// ParseContinue is the inverse of Continue.String. It returns ErrInvalid for a position outside of prefix.
func ParseContinue(s, prefix string) (Continue, error) {
	bad := fmt.Errorf("%w: continue token %.64q: it does not belong to a list of %s; list from the start", ErrInvalid, s,
		prefix)
	r, k, ok := strings.Cut(s, ".")
	if !ok {
		return Continue{}, bad
	}
	digits, err1 := base64.RawURLEncoding.DecodeString(r)
	after, err2 := base64.RawURLEncoding.DecodeString(k)
	if err1 != nil || err2 != nil || !strings.HasPrefix(string(after), prefix) || ValidKey(string(after)) != nil {
		return Continue{}, bad
	}
	rev, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return Continue{}, bad
	}
	return Continue{Revision: rev, After: string(after)}, nil
}
