package list

import (
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// maxRemaining bounds the count that a member reports, so that sums do not overflow.
const maxRemaining = 1 << 40

// remaining returns the member's own remainingItemCount, or nil if the response omits some of its objects.
func (one *part) remaining() *int64 {
	if one.namespaces != nil {
		return nil
	}
	return one.Metadata().RemainingItemCount
}

// remaining returns the number of objects that follow a page; 0 if it is not known. written is the number of objects of
// the page. fromFirst of them are of parts[0], in which the page ends.
//
// The first page adds the counts of its members, and asks those without a count. Later pages subtract their own
// objects, since all pages show the same moment.
func (p *page) remaining(parts []*part, fromFirst, written int) int64 {
	switch {
	case p.token != nil:
		return max(0, p.token.Remaining-int64(written))
	case p.memberToken != "", p.req.Param("labelSelector") != "", p.req.Param("fieldSelector") != "":
		return 0 // as kube-apiserver
	}
	left := -int64(fromFirst)
	var unknown []members.Target
	for _, one := range parts {
		m, n := one.Metadata(), p.limit
		if one.Whole() {
			n = one.Read
		}
		if one.namespaces != nil {
			return 0
		} else if m.Continue == "" && !one.Whole() {
			unknown = append(unknown, one.Target)
		} else if count, ok := countOf(n, m); ok {
			left += count
		} else {
			return 0
		}
	}
	counted, ok := p.count(unknown)
	if !ok {
		return 0
	}
	return max(0, left+counted)
}

// countOf returns the number of all objects of a member that sent a page of n objects. It reports whether the number is
// known.
func countOf(n int, m *merge.Metadata) (count int64, ok bool) {
	switch left := m.RemainingItemCount; {
	case m.Continue == "":
		return int64(n), true
	case left == nil || *left < 0 || *left > maxRemaining:
		return 0, false
	default:
		return int64(n) + *left, true
	}
}

// count asks each member for one object at the version of the list, and reports whether all reported their count.
func (p *page) count(targets []members.Target) (sum int64, ok bool) {
	counts := make([]int64, len(targets))
	known := make([]bool, len(targets))
	p.client.Each(targets, func(i int, t members.Target) *members.Answer {
		call, err := p.call(t, members.MetadataListAccept)
		if err != nil {
			return &members.Answer{Target: t, Err: err}
		}
		call.Query.Set("limit", "1")
		m, n, a := p.client.ListMetadata(p.client.Context(), t, call)
		if a.Err == nil {
			counts[i], known[i] = countOf(n, &m)
		}
		return a
	})
	for _, n := range counts {
		sum += n
	}
	return sum, !slices.Contains(known, false)
}
