// Package cursor encodes resourceVersions (Version) and continue tokens (Token) that any instance of the fleet can
// read.
//
// Both are self-contained. They identify a member by the store's revision that created its Cluster object. A cluster
// that is registered again under an old name is therefore another member with another history.
package cursor

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// ErrInvalid is the error for text that no instance of the fleet wrote.
var ErrInvalid = errors.New("not one of the fleet's")

// Version is a composite resourceVersion. It maps the id of each member that has sent something to its own version.
type Version map[uint64]string

// objectID is the key of an object's own version. No member has this id, because no revision of the store is 0.
const objectID = 0

// The text of a composite has only digits, so that clients may compare it as
// k8s.io/apimachinery/pkg/util/resourceversion does:
//
//	1           the format
//	ii vv       two widths, of ids and of versions, two digits each
//	id version  for each member in the order of ids, padded with zeros to the widths
//
// The widths never shrink below their minima, so the text is numerically larger if one member's version is larger and
// none is smaller. The minima make it longer than the 20 digits of a member's own version.
const (
	format     = '1'
	minID      = 4
	minVersion = 12
	ownLength  = 20
)

// ValidOwn reports whether v may be a member's own resourceVersion. kube-apiserver's are positive numbers of 64 bits.
func ValidOwn(v string) bool {
	n, err := strconv.ParseUint(v, 10, 64)
	return err == nil && n > 0 && v[0] != '0'
}

// Before reports whether a member's own version, a, is earlier than b. Both must be ValidOwn.
func Before(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

// Composite reports whether a resourceVersion is a composite and not a member's own. It may still be invalid.
func Composite(v string) bool {
	return len(v) > ownLength && v[0] == format && strings.Trim(v, "0123456789") == ""
}

// String returns the text of v, or "" if it has no member. Every version must be ValidOwn.
func (v Version) String() string { return new(Text).Of(v) }

// ParseVersion is the inverse of String. It returns ErrInvalid for any text that String does not produce.
func ParseVersion(s string) (Version, error) {
	invalid := func(why string) (Version, error) {
		return nil, fmt.Errorf("resourceVersion %.64q: %w: %s", s, ErrInvalid, why)
	}
	if !Composite(s) {
		return invalid("want the resourceVersion of a list, watch event or bookmark of the fleet")
	}
	idWidth, width := number(s[1:3]), number(s[3:5])
	rest := s[5:]
	if idWidth < minID || width < minVersion || len(rest)%(idWidth+width) != 0 {
		return invalid("its length is wrong")
	}
	v := make(Version, len(rest)/(idWidth+width))
	for ; rest != ""; rest = rest[idWidth+width:] {
		id, err := strconv.ParseUint(rest[:idWidth], 10, 64)
		own := strings.TrimLeft(rest[idWidth:idWidth+width], "0")
		if err != nil || !ValidOwn(own) {
			return invalid("it contains an invalid version of a member")
		}
		v[id] = own
	}
	if v.String() != s {
		return invalid("it is not in the format of the fleet")
	}
	return v, nil
}

func number(s string) int { return int(s[0]-'0')*10 + int(s[1]-'0') }

// WithObject returns a composite that cannot be resumed from, with an object's own version. It is larger than v, and
// smaller than any later v with one member more.
func (v Version) WithObject(own string) Version {
	out := make(Version, len(v)+1)
	maps.Copy(out, v)
	out[objectID] = own
	return out
}

// OfObject returns the resourceVersion to send to a member when its object is written. ok is false if v has none.
func (v Version) OfObject(id uint64) (own string, ok bool) {
	if own, ok = v[objectID]; ok {
		return own, true
	}
	own, ok = v[id]
	return own, ok
}

// Clone returns a copy of v.
func (v Version) Clone() Version { return maps.Clone(v) }
