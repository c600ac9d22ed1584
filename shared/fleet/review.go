package fleet

import (
	"context"
	"slices"
	"time"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/status"
)

// reviewEvery is how often a watch looks for clusters that came, or that it may not follow any more.
const reviewEvery = 5 * time.Second

// sight is what a watch finds when it looks who takes part.
type sight struct {
	inv     *members.Inventory
	allowed []members.Entry // nil where it failed before that was known
	targets []members.Target
	err     error
}

// look finds out who takes part now. That may wait for clusters that hang, and so is done beside the watch.
func (w *watcher) look(ctx context.Context) <-chan sight {
	found := make(chan sight, 1)
	q := *w.q
	q.r = q.r.WithContext(ctx)
	q.m = q.m.WithRequest(q.r)
	go func() { // ends with ctx, that is with the watch
		var s sight
		defer func() { found <- s }()
		defer q.f.m.Recover("*", func(e *members.Failure) { s = sight{err: members.Summary([]*members.Failure{e})} })
		if s.inv, s.err = q.f.m.Inventory(ctx); s.err != nil {
			return
		}
		q.inv = s.inv
		if s.allowed, s.err = q.allowed(); s.err == nil {
			s.targets, s.err = q.takers(s.allowed)
		}
	}()
	return found
}

// review takes in clusters that came, and ends a watch on one that may not be followed any more: its objects must go, and only a new list
// says which these are.
func (w *watcher) review(ctx context.Context, s sight) error {
	q := w.q
	may := func(c members.Entry) bool {
		f := w.followed[c.ID] // goes on as whom it began: where that changed it may not
		return (f == nil || f.Mode() == c.Mode()) && (c.Mode() != clusterv1alpha1.Direct || c.MayDirect(q.user.Name))
	}
	now := map[uint64]bool{}
	if s.err != nil {
		switch status.From(s.err).Reason {
		case status.Forbidden, status.UnknownCluster, status.NotGlobal:
			return gone()
		case status.MembersFailed:
			if s.allowed == nil {
				return s.err
			}
			for _, c := range s.allowed { // nobody says now who takes part: who does goes on, if they still may
				now[c.ID] = may(c)
			}
		default:
			return s.err
		}
	}
	q.inv = s.inv
	// Composites are larger numbers, so that versions only grow. A resume from an older event is refused with 410.
	w.single = w.single && (s.err != nil || singleMember(s.targets))
	for _, t := range s.targets {
		if !may(t.Entry) {
			continue
		}
		now[t.ID] = true
		if f := w.followed[t.ID]; f == nil {
			w.follow(ctx, t, 0)
		} else if t.Unavailable != nil {
			continue // as it was
		} else if f.Unavailable != nil {
			f.cancel()
			w.follow(ctx, t, 0)
		} else if f.Scope.All != t.Scope.All || !slices.Equal(f.Scope.Namespaces, t.Scope.Namespaces) {
			return status.New(status.Expired, "", "a ResourceRegistry takes in other namespaces than before: list again")
		}
	}
	for id := range w.followed {
		if _, delivered := w.version[id]; !now[id] && (delivered || w.shown[id]) {
			return gone()
		} else if !now[id] {
			w.followed[id].cancel()
			delete(w.followed, id)
			delete(w.pending, id)
		}
	}
	return nil
}
