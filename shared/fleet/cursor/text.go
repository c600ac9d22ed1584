package cursor

import (
	"maps"
	"slices"
	"strconv"
)

// Text formats versions that differ little from the previous one, such as those of a watch. It formats only the members
// that changed. The zero value is ready for use. It is not safe for concurrent use.
type Text struct {
	ids            []uint64 // sorted
	own            []string // the versions of these members
	idWidth, width int
	digits         []byte
	text           string
}

// Of returns the text of v, or "" if it has no member. Every version must be ValidOwn.
func (t *Text) Of(v Version) string {
	if len(v) == 0 {
		return ""
	}
	if !t.update(v) {
		t.build(v)
	}
	return t.text
}

// update returns false if v has other members, or might have other widths.
func (t *Text) update(v Version) bool {
	if len(v) != len(t.ids) {
		return false
	}
	changed := false
	for i, id := range t.ids {
		own, ok := v[id]
		switch before := t.own[i]; {
		case !ok || len(own) > t.width || t.width > minVersion && len(own) < len(before):
			return false
		case own == before:
			continue
		}
		end := len("1iivv") + (i+1)*(t.idWidth+t.width)
		appendPadded(t.digits[:end-t.width], own, t.width)
		t.own[i], changed = own, true
	}
	if changed {
		t.text = string(t.digits)
	}
	return true
}

func (t *Text) build(v Version) {
	t.ids = slices.Sorted(maps.Keys(v))
	t.own = make([]string, len(t.ids))
	t.idWidth, t.width = max(minID, len(strconv.FormatUint(t.ids[len(t.ids)-1], 10))), minVersion
	for i, id := range t.ids {
		t.own[i] = v[id]
		t.width = max(t.width, len(t.own[i]))
	}
	out := make([]byte, 0, len("1iivv")+len(t.ids)*(t.idWidth+t.width))
	out = append(out, format)
	out = appendPadded(out, strconv.Itoa(t.idWidth), 2)
	out = appendPadded(out, strconv.Itoa(t.width), 2)
	for i, id := range t.ids {
		out = appendPadded(out, strconv.FormatUint(id, 10), t.idWidth)
		out = appendPadded(out, t.own[i], t.width)
	}
	t.digits, t.text = out, string(out)
}

func appendPadded(dst []byte, digits string, width int) []byte {
	for range width - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}
