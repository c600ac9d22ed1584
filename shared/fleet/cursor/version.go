// Package cursor holds what the fleet hands out so that any instance can go on where another stopped: the composite
// resourceVersion, and the composite continue token. Both are self-contained and carry the number of their format.
//
// Both name members by their permanent id, the store's revision that created the member's Cluster object: a cluster that is
// registered anew under an old name is another member, whose history is not the old one's.
package cursor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ErrInvalid is the class of errors about what was never handed out here.
var ErrInvalid = errors.New("not one of the fleet's")

// Version is a composite resourceVersion: each member's own, in digits, by the member's id. A member that is not in it has sent
// nothing yet.
type Version map[uint64]string

// objectID marks the version of one object, see WithObject. No member has that id: a revision of the store is never 0.
const objectID = 0

// A composite is written in digits only, so that clients may compare it as
// k8s.io/apimachinery/pkg/util/resourceversion does:
//
//	1           the format
//	ii vv       two widths, of ids and of versions, two digits each
//	id version  for each member in the order of ids, padded with zeros to the widths
//
// Widths grow and never shrink below a minimum, so that while members stay the same a composite has the same length, or a greater one
// once a version outgrew its width: it is numerically larger whenever one member's is larger and none smaller. The minima keep it longer than the 20
// digits of a member's own.
const (
	format     = '1'
	minID      = 4
	minVersion = 12
	ownLength  = 20
)

// ValidOwn reports whether v may be a member's own resourceVersion: as kube-apiserver makes them, a positive number of 64 bits.
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

// String writes v; "" if it has no member. Every version must be ValidOwn.
func (v Version) String() string {
	if len(v) == 0 {
		return ""
	}
	ids := slices.Sorted(maps.Keys(v))
	idWidth := max(minID, len(strconv.FormatUint(ids[len(ids)-1], 10)))
	width := minVersion
	for _, own := range v {
		width = max(width, len(own))
	}
	out := make([]byte, 0, 5+len(ids)*(idWidth+width))
	out = append(out, format)
	out = appendPadded(out, strconv.Itoa(idWidth), 2)
	out = appendPadded(out, strconv.Itoa(width), 2)
	for _, id := range ids {
		out = appendPadded(out, strconv.FormatUint(id, 10), idWidth)
		out = appendPadded(out, v[id], width)
	}
	return string(out)
}

// appendPadded appends digits with zeros before them, width bytes in all.
func appendPadded(dst []byte, digits string, width int) []byte {
	for range width - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// ParseVersion is the inverse of String. Whatever String would write in another way is ErrInvalid.
func ParseVersion(s string) (Version, error) {
	bad := func(why string) (Version, error) {
		return nil, fmt.Errorf("resourceVersion %.64q: %w: %s", s, ErrInvalid, why)
	}
	if !Composite(s) {
		return bad("want the resourceVersion of a list, watch event or bookmark of the fleet")
	}
	idWidth, width := number(s[1:3]), number(s[3:5])
	rest := s[5:]
	if idWidth < minID || width < minVersion || len(rest)%(idWidth+width) != 0 {
		return bad("its length is wrong")
	}
	v := make(Version, len(rest)/(idWidth+width))
	for ; rest != ""; rest = rest[idWidth+width:] {
		id, err := strconv.ParseUint(rest[:idWidth], 10, 64)
		own := strings.TrimLeft(rest[idWidth:idWidth+width], "0")
		if err != nil || !ValidOwn(own) {
			return bad("it contains an invalid version of a member")
		}
		v[id] = own
	}
	if v.String() != s {
		return bad("it is not in the format of the fleet")
	}
	return v, nil
}

// number reads two digits.
func number(s string) int { return int(s[0]-'0')*10 + int(s[1]-'0') }

// WithObject returns a composite for an event that a watch cannot be resumed from. It has the object's own version
// beside the versions that the watch delivered. It is larger than v, and smaller than any later v with one member more.
func (v Version) WithObject(own string) Version {
	out := make(Version, len(v)+1)
	maps.Copy(out, v)
	out[objectID] = own
	return out
}

// OfObject returns the version of an object of that member, as a write needs it. It reports whether v has one.
func (v Version) OfObject(id uint64) (own string, ok bool) {
	if own, ok = v[objectID]; ok {
		return own, true
	}
	own, ok = v[id]
	return own, ok
}

// Clone returns a copy.
func (v Version) Clone() Version { return maps.Clone(v) }
