package watch

import (
	"context"
	"slices"
	"time"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/status"
)

const reviewInterval = 5 * time.Second // between two checks of the covered clusters

type coverage struct {
	allowed []members.Entry // nil if it failed before they were known
	targets []members.Target
	err     error
}

// readCoverage may wait for clusters that hang, while the watch continues. Its goroutine ends with ctx.
func (w *watcher) readCoverage(ctx context.Context) <-chan coverage {
	result := make(chan coverage, 1)
	selector, pool := w.selector, w.client.Pool
	go func() {
		var c coverage
		defer func() { result <- c }()
		defer pool.Recover("*", func(e *members.Failure) {
			c = coverage{err: members.Summary([]*members.Failure{e})}
		})
		if selector, c.err = selector.Refresh(ctx); c.err != nil {
			return
		}
		if c.allowed, c.err = selector.Allowed(ctx); c.err == nil {
			c.targets, c.err = selector.TargetsAmong(ctx, c.allowed)
		}
	}()
	return result
}

// review follows clusters that joined. An error ends the watch, since only a new list shows which objects are gone.
func (w *watcher) review(ctx context.Context, c coverage) error {
	covered := map[uint64]bool{}
	if c.err != nil {
		if err := w.keepAllowed(covered, c); err != nil {
			return err
		}
	}
	// Composites are larger numbers, so that versions only grow. A resume from an older event is refused with 410.
	w.single = w.single && (c.err != nil || members.IsSingle(c.targets))
	for _, t := range c.targets {
		if !w.mayFollow(t.Entry) {
			continue
		}
		covered[t.ID] = true
		if err := w.reviewTarget(ctx, t); err != nil {
			return err
		}
	}
	return w.dropUncovered(covered)
}

// mayFollow reports whether a cluster may be followed. A follower cannot change the identity with which it began.
func (w *watcher) mayFollow(c members.Entry) bool {
	f := w.followed[c.ID]
	if f != nil && f.Mode() != c.Mode() {
		return false
	}
	return c.Mode() != clusterv1alpha1.Direct || c.MayDirect(w.req.User.Name)
}

// keepAllowed marks the clusters that the watch still follows although the coverage is not known.
func (w *watcher) keepAllowed(covered map[uint64]bool, c coverage) error {
	switch status.From(c.err).Reason {
	case status.Forbidden, status.UnknownCluster, status.NotGlobal:
		return notCovered()
	case status.MembersFailed:
		if c.allowed == nil {
			return c.err
		}
		for _, entry := range c.allowed {
			covered[entry.ID] = w.mayFollow(entry)
		}
		return nil
	}
	return c.err
}

// reviewTarget follows a cluster that joined. It fails if other namespaces are covered than before.
func (w *watcher) reviewTarget(ctx context.Context, t members.Target) error {
	f := w.followed[t.ID]
	switch {
	case f == nil:
		w.follow(ctx, t, 0)
	case t.Unavailable != nil: // its follower continues
	case f.Unavailable != nil:
		f.cancel()
		w.follow(ctx, t, 0)
	case f.Scope.All != t.Scope.All || !slices.Equal(f.Scope.Namespaces, t.Scope.Namespaces):
		return status.New(status.Expired, "", "a ResourceRegistry covers other namespaces than before: list again")
	}
	return nil
}

// dropUncovered fails if the client has seen objects of an uncovered cluster, or resumed from its version.
func (w *watcher) dropUncovered(covered map[uint64]bool) error {
	for id, f := range w.followed {
		if covered[id] {
			continue
		}
		if _, delivered := w.version[id]; delivered || w.shown[id] {
			return notCovered()
		}
		f.cancel()
		delete(w.followed, id)
		delete(w.pending, id)
	}
	return nil
}
