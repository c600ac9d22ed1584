package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// part is one member's list on its way into the answer.
type part struct {
	*members.Answer
	*merge.Source
	scope     []string // namespaces that are taken; nil for all
	base      string   // the continue token that the member was asked with
	skip      int      // objects of it that were given on pages before
	transform func(dst []byte, object merge.Object) ([]byte, error)
	namespace func() string // of the object before
}

// list answers with the lists of all targets, spliced into one.
func (q *ask) list(w http.ResponseWriter, targets []members.Target) error {
	if err := q.refusePrune(); err != nil {
		return err
	}
	accept, err := acceptJSON(q.r.Header)
	if err != nil {
		return err
	}
	p, err := q.page(targets)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(q.r.Context())
	defer cancel()
	sources := make([]*merge.Source, len(p.targets))
	answers := q.m.Each(p.targets, func(i int, t members.Target) *members.Answer {
		out, err := p.outgoing(t, accept)
		if err != nil {
			return &members.Answer{Target: t, Err: err}
		}
		return q.m.Do(ctx, t, out, func(a *members.Answer) (err error) {
			sources[i], err = merge.Open(t.Name, members.NewPacedReader(a))
			return err
		})
	})
	good, failures, err := members.Split(answers)
	if err != nil {
		return err
	}
	defer members.CloseAll(good)
	var parts []*part
	for i, a := range answers {
		if a.Err == nil {
			parts = append(parts, p.part(a, sources[i]))
		}
	}
	parts, failures = oneForm(parts, failures)
	parts, failures = p.versioned(parts, failures)
	switch gone := p.expired(failures); {
	case p.single && len(failures) == 1 && failures[0].IsExpired() && canPass(failures[0]):
		return q.refuse(w, failures[0]) // it may have a continue token for the rest, or a time to wait
	case len(gone) > 0: // whatever else failed: the client is to begin anew
		return members.ExpiredSummary(gone)
	case len(parts) == 0, len(failures) > 0 && (q.strict || p.token != nil):
		return q.incomplete(failures)
	}
	h := w.Header()
	members.PassWarnings(h, good)
	members.Warn(h, failures)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	out := newSink(w)
	defer out.release()
	if err := p.write(out, parts); err != nil {
		if q.r.Context().Err() == nil {
			q.f.cfg.Log.Warn("a list of the fleet broke off", "path", q.route.Path, "error", err.Error())
		}
		panic(http.ErrAbortHandler) // to return would make a cut answer whole
	}
	return nil
}

// part makes a member's list a part of the answer.
func (p *page) part(a *members.Answer, s *merge.Source) *part {
	one := &part{Answer: a, Source: s}
	if p.q.res.Namespace == "" && !a.Scope.All && len(a.Scope.Namespaces) > 1 {
		one.scope = a.Scope.Namespaces
	}
	if p.token != nil && p.token.Next == a.ID {
		one.base, one.skip = p.token.Continue, p.token.Skip
	} else if p.own != "" {
		one.base = p.own
	}
	return one
}

// oneForm leaves out members that answer in another form than most, or with another kind: an aggregated API may know no Tables.
func oneForm(parts []*part, failures []*members.Failure) ([]*part, []*members.Failure) {
	if len(parts) == 0 {
		return nil, failures
	}
	var out []*part
	most := likeMost(parts)
	for _, one := range parts {
		if one.IsTable() == most.IsTable() && (one.Kind == "" || most.Kind == "" || one.Kind == most.Kind && one.APIVersion == most.APIVersion) {
			out = append(out, one)
			continue
		}
		failures = append(failures, &members.Failure{Cluster: one.Name, Code: http.StatusNotAcceptable,
			Message: fmt.Sprintf("cluster %q answers this kind in another form (%.100s) than cluster %q (%.100s)", one.Name, form(one), most.Name, form(most))})
	}
	return out, failures
}

// likeMost returns a part whose form most have, as far as it has come; where as many have another, of the cluster that is registered longest. There
// must be one.
func likeMost(parts []*part) *part {
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

// versioned leaves out members that say before their objects that their list has no version, where it must have one: where a version was
// asked for, as on pages after the first, and on a first page if another member has one. Where none has, there are no pages.
func (p *page) versioned(parts []*part, failures []*members.Failure) ([]*part, []*members.Failure) {
	without := func(one *part) bool { return one.Metadata() != nil && !cursor.ValidOwn(one.Metadata().ResourceVersion) }
	if !slices.ContainsFunc(parts, func(one *part) bool { return !without(one) }) {
		p.limit = 0 // metrics and their like have no versions, and so no pages: their API servers send all
	}
	var out []*part
	for _, one := range parts {
		if _, asked := p.version[one.ID]; !without(one) || !asked && p.limit == 0 {
			out = append(out, one)
			continue
		}
		failures = append(failures, &members.Failure{Cluster: one.Name, Code: http.StatusBadGateway,
			Message: fmt.Sprintf("cluster %q lists without a resourceVersion, and so not in pages", one.Name)})
	}
	return out, failures
}
