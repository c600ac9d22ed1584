package fleet

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// write writes the whole answer.
func (p *page) write(out *sink, parts []*part) error {
	early := p.limit == 0
	for _, one := range parts {
		early = early && one.Metadata() != nil
		if err := p.saw(one); err != nil {
			return err
		}
	}
	table := parts[0].IsTable()
	layout := p.prepare(parts, table)
	out.text("{")
	if early {
		out.head(likeMost(parts).Source)
		out.metadata(p.metadata(merge.Metadata{}))
		out.text(",")
	}
	if table {
		out.text(`"columnDefinitions":`)
		_ = out.bytes(layout.Definitions()) // out keeps its error
		out.text(`,"rows":[`)
	} else {
		out.text(`"items":[`)
	}
	end, err := p.objects(out, parts)
	if err != nil {
		return err
	}
	out.text("]")
	if !early {
		out.text(",")
		out.head(likeMost(parts).Source)
		out.metadata(p.metadata(end))
	}
	out.text("}\n")
	return out.flush()
}

// prepare gives each part the way its objects go into the answer.
func (p *page) prepare(parts []*part, table bool) *merge.Layout {
	var layout *merge.Layout
	if table {
		layout = merge.NewLayout(columnsOf(parts)...)
	}
	for _, one := range parts {
		a := p.q.called(one.Name)
		one.transform, one.namespace = a.Append, a.Namespace
		if table {
			one.transform = layout.For(one.Name, one.Columns, a).Append
		}
	}
	return layout
}

// columnsOf are the columns of tables: first those that most have, and of as many those of the cluster that is registered longest.
func columnsOf(parts []*part) [][]merge.Column {
	parts = slices.Clone(parts)
	said, votes := map[*part]string{}, map[string]int{}
	for _, one := range parts {
		names := make([]string, len(one.Columns))
		for i, c := range one.Columns {
			names[i] = c.Name
		}
		said[one] = fmt.Sprintf("%q", names)
		votes[said[one]]++
	}
	slices.SortFunc(parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(votes[said[b]], votes[said[a]]), cmp.Compare(a.ID, b.ID))
	})
	out := make([][]merge.Column, len(parts))
	for i, one := range parts {
		out[i] = one.Columns
	}
	return out
}

// saw notes the version that a part's metadata has, if it has come.
func (p *page) saw(one *part) error {
	m := one.Metadata()
	if m == nil {
		return nil
	}
	if v, ok := p.version[one.ID]; ok && v != m.ResourceVersion {
		return fmt.Errorf("cluster %q lists at version %q, and was asked for %s", one.Name, m.ResourceVersion, v)
	}
	if cursor.ValidOwn(m.ResourceVersion) { // some aggregated APIs have none
		p.version[one.ID] = m.ResourceVersion
	}
	return nil
}

// metadata returns the metadata of a page with that end.
func (p *page) metadata(end merge.Metadata) merge.Metadata {
	end.ResourceVersion = written(p.version, p.single)
	return end
}

// objects writes the parts' objects, up to the limit. It returns the continue token and the count of what follows the page.
func (p *page) objects(out *sink, parts []*part) (end merge.Metadata, err error) {
	if p.limit == 0 {
		if len(p.later) > 0 { // goOn takes all; without this a mistake there would be a list that looks whole
			return end, fmt.Errorf("%d clusters are left out of a list without pages", len(p.later))
		}
		return end, p.inTurns(out, parts)
	}
	for i, one := range parts {
		more, err := p.give(out, one, p.limit-p.given)
		if err != nil {
			return end, err
		}
		if more || one.Metadata().Continue != "" {
			return p.cut(parts, i)
		}
	}
	if len(p.later) == 0 {
		return end, nil
	}
	return p.end(cursor.Token{Version: p.version, Next: p.later[0].ID, Remaining: p.remaining(nil, 0)}), nil
}

// give writes up to n objects of a part. It reports whether there may be more.
func (p *page) give(out *sink, one *part, n int) (more bool, err error) {
	for n > 0 {
		one.fill(&p.piece, n)
		n -= p.piece.objects
		if more, err := p.put(out, one, &p.piece); !more {
			return false, err
		}
	}
	return true, nil
}

// next returns the part's next object of those that were not given yet.
func (one *part) next() (merge.Object, error) {
	for {
		v, err := one.Next()
		if err != nil || one.Read > one.skip {
			return v, err
		}
	}
}
