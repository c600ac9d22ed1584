package list

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// kube-apiserver ends a response after a minute, but a list of many members may last longer. So a list without a limit
// first requests one object of each member beyond the first maxStarted. It requests their other objects once it reads
// them. Otherwise, these would also wait in buffers.

// limitToFirst makes a query ask for one object, and for a continue token if there are more.
func limitToFirst(query url.Values) {
	query.Set("limit", "1")
	switch version := query.Get("resourceVersion"); {
	case version == "":
	case version == "0": // kube-apiserver ignores a limit for it. The current version satisfies it, too.
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	case query.Get("resourceVersionMatch") == "":
		query.Set("resourceVersionMatch", "NotOlderThan") // the default without a limit; with one, it is Exact
	}
}

// restOf returns a function that requests the objects of a member after the first one. Its calls end with ctx.
func (p *page) restOf(ctx context.Context, t members.Target, accept string) func(token string) (
	*members.Answer, *merge.Source, error,
) {
	return func(token string) (*members.Answer, *merge.Source, error) {
		call, err := p.call(t, accept)
		if err != nil {
			return nil, nil, err
		}
		call.Query.Del("resourceVersion")
		call.Query.Del("resourceVersionMatch")
		call.Query.Set("continue", token)
		a, s := p.open(ctx, t, call)
		return a, s, a.Err
	}
}

// open requests a list of a member, and reads it up to its objects.
func (p *page) open(ctx context.Context, t members.Target, call members.Call) (a *members.Answer, s *merge.Source) {
	a = p.client.Do(ctx, t, call, func(a *members.Answer) (err error) {
		if s, err = merge.Open(t.Name, members.NewPacedReader(a)); err == nil && call.Merged {
			s.LimitReads(mergedReadSize)
		}
		return err
	})
	return a, s
}

// openRest continues a part after its first object.
func (one *part) openRest() error {
	first := one.Source
	a, rest, err := one.rest(first.Metadata().Continue)
	if one.rest = nil; err != nil {
		return err
	}
	one.restAnswer, one.Source, one.firstVersion = a, rest, first.Metadata().ResourceVersion
	sameName := func(a, b merge.Column) bool { return a.Name == b.Name }
	if !isSameForm(first, rest) || !slices.EqualFunc(first.Columns, rest.Columns, sameName) {
		return fmt.Errorf("cluster %q returned the rest of its list in another format", one.Name)
	}
	return nil
}
