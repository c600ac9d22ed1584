package list

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// part is the list of one member as a part of the answer.
type part struct {
	*members.Answer
	*merge.Source
	namespaces []string // only objects in these are written; nil for all
	token      string   // the continue token that the member received
	skip       int      // number of its first objects, which earlier pages contain
	transform  func(dst []byte, object merge.Object) ([]byte, error)
	namespace  func() string // namespace of the object that transform appended last

	// request requests the list of a later member. It is nil for the others, and after its call.
	request func() (*members.Answer, *merge.Source)
	later   *members.Answer // the response to request, or nil
}

func (p *page) newPart(a *members.Answer, s *merge.Source) *part {
	one := &part{Answer: a, Source: s}
	if p.req.Resource.Namespace == "" && !a.Scope.All && len(a.Scope.Namespaces) > 1 {
		one.namespaces = a.Scope.Namespaces
	}
	if p.token != nil && p.token.Next == a.ID {
		one.token, one.skip = p.token.Continue, p.token.Skip
	} else if p.memberToken != "" {
		one.token = p.memberToken
	}
	return one
}

// next returns the part's next object that no earlier page contains.
func (one *part) next() (merge.Object, error) {
	if one.request != nil {
		if err := one.begin(); err != nil {
			return merge.Object{}, err
		}
	}
	for {
		v, err := one.Next()
		if err != nil || one.Read > one.skip {
			return v, err
		}
	}
}

// dropOtherForms removes parts whose form or kind differs from that of the majority. An aggregated API may lack Tables.
func dropOtherForms(parts []*part, failures []*members.Failure) ([]*part, []*members.Failure) {
	if len(parts) == 0 {
		return nil, failures
	}
	var out []*part
	most := majority(parts)
	for _, one := range parts {
		if one.HasFormOf(most.Source) {
			out = append(out, one)
			continue
		}
		failures = append(failures, members.NewFailure(one.Name, http.StatusNotAcceptable, nil,
			"cluster %q returns this kind in another format (%.100s) than cluster %q (%.100s)",
			one.Name, form(one), most.Name, form(most)))
	}
	return out, failures
}

// majority returns a part with the most frequent form. On a tie, the first registered cluster wins.
func majority(parts []*part) *part {
	votes := map[string]int{}
	for _, one := range parts {
		votes[form(one)]++
	}
	return slices.MaxFunc(parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(votes[form(a)], votes[form(b)]), cmp.Compare(b.ID, a.ID))
	})
}

func form(one *part) string {
	if one.IsTable() {
		return "Table"
	}
	return cmp.Or(one.Kind, "list") + " of " + one.APIVersion
}

// dropUnversioned removes parts that lack a required version. Pages require versions, and so does a list at an exact
// version. If no member has a version, the list has no pages.
func (p *page) dropUnversioned(parts []*part, failures []*members.Failure) ([]*part, []*members.Failure) {
	isUnversioned := func(one *part) bool {
		return one.Metadata() != nil && !cursor.ValidOwn(one.Metadata().ResourceVersion)
	}
	if !slices.ContainsFunc(parts, func(one *part) bool { return !isUnversioned(one) }) {
		p.limit = 0 // API servers without versions, such as metrics, send everything
	}
	var out []*part
	for _, one := range parts {
		if _, needed := p.version[one.ID]; !isUnversioned(one) || !needed && p.limit == 0 {
			out = append(out, one)
			continue
		}
		failures = append(failures, members.NewFailure(one.Name, http.StatusBadGateway, nil,
			"cluster %q lists without a resourceVersion, which pages and resourceVersionMatch=Exact need", one.Name))
	}
	return out, failures
}

// columnsOf returns the columns of all parts, the most frequent first. On a tie, those of the first registered cluster
// come first.
func columnsOf(parts []*part) [][]merge.Column {
	parts = slices.Clone(parts)
	names, votes := map[*part]string{}, map[string]int{}
	for _, one := range parts {
		columns := make([]string, len(one.Columns))
		for i, c := range one.Columns {
			columns[i] = c.Name
		}
		names[one] = fmt.Sprintf("%q", columns)
		votes[names[one]]++
	}
	slices.SortFunc(parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(votes[names[b]], votes[names[a]]), cmp.Compare(a.ID, b.ID))
	})
	out := make([][]merge.Column, len(parts))
	for i, one := range parts {
		out[i] = one.Columns
	}
	return out
}
