package watch

import (
	"context"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
)

// watcher answers one watch of several members. Only the goroutine of ServeWatch uses it.
type watcher struct {
	*session
	progress
	votes           kindVotes
	selector        *selection.Selector
	targets         []members.Target // those that the watch began with
	timeout         time.Duration    // 0 for none
	allowsBookmarks bool
	sendsInitial    bool // the client requests all objects and then a bookmark (WatchList)
	skipsInitial    bool // the client requests no objects (sendInitialEvents=false)
	followed        map[uint64]*followed
	unlisted        map[uint64]bool // members whose objects are not sent, only later events
	layout          *merge.Layout   // the layout of a table, as the client knows it
}

type followed struct {
	*follower
	answer  *naming.Answer
	layout  *merge.Layout  // the layout that rows writes
	rows    *merge.Rows    // nil before the first row of a table
	columns []merge.Column // the member's columns, which rows reads
}

func newWatcher(s *session, targets []members.Target) *watcher {
	return &watcher{
		session: s, progress: newProgress(members.IsSingle(targets)), targets: targets, votes: newKindVotes(),
		followed: map[uint64]*followed{}, unlisted: map[uint64]bool{},
	}
}

func (w *watcher) follow(ctx context.Context, t members.Target, delay time.Duration) *follower {
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{
		Target: t, session: w.session, version: w.version[t.ID], skipInitial: w.unlisted[t.ID], single: w.single,
		started: make(chan error, 1), hasStarted: delay > 0, delay: delay, cancel: cancel,
	}
	w.followed[t.ID] = &followed{follower: f, answer: respond.NewAnswer(w.client, w.req, t.Name)}
	f.start(ctx)
	return f
}
