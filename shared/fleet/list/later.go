package list

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// kube-apiserver ends a response after a minute, but a list of many members may last longer. So a list without a limit
// first checks each member beyond the first maxStarted by a request with limit=1. It requests their lists when they are
// among the next maxStarted. If it requested them at the beginning, they would also occupy buffers until then.

// A request for the list of a later member is repeated after a failure, since the whole response breaks off with it.
const (
	requestAttempts = 3
	requestPause    = time.Second // before the third attempt; the second one follows at once
)

// isLater reports whether the list of the member with that index is requested later than those of the first ones.
func isLater(p *page, i int) bool { return p.limit == 0 && i >= maxStarted }

// limitToFirst makes a query request one object. With a limit, kube-apiserver reads a version without a match as Exact.
func limitToFirst(query url.Values) {
	query.Set("limit", "1")
	if query.Get("resourceVersion") != "" && query.Get("resourceVersionMatch") == "" {
		query.Set("resourceVersionMatch", "NotOlderThan")
	}
}

// open requests a list of a member, and reads it up to its objects.
func open(ctx context.Context, client *members.Client, t members.Target, call members.Call) (
	a *members.Answer, s *merge.Source,
) {
	a = client.Do(ctx, t, call, func(a *members.Answer) (err error) {
		if s, err = merge.Open(t.Name, members.NewPacedReader(a)); err == nil && call.Buffer != cluster.LargeBuffer {
			s.LimitReads(mergedReadSize)
		}
		return err
	})
	return a, s
}

// newRequest returns a function that requests the list of a later member. Its calls end with ctx.
func newRequest(ctx context.Context, client *members.Client, t members.Target, call members.Call) func() (
	*members.Answer, *merge.Source,
) {
	return func() (a *members.Answer, s *merge.Source) {
		for attempt := 1; ; attempt++ {
			if a, s = open(ctx, client, t, call); a.Err == nil || attempt == requestAttempts {
				return a, s
			}
			select {
			case <-time.After(time.Duration(attempt-1) * requestPause):
			case <-ctx.Done():
				return a, s
			}
		}
	}
}

// begin requests the list of a later member. Its error never wraps io.EOF, which means a complete list.
func (one *part) begin() error {
	a, s := one.request()
	if one.request = nil; a.Err != nil {
		return errors.New(a.Err.Error())
	}
	first := one.Source
	one.later, one.Source = a, s
	sameName := func(a, b merge.Column) bool { return a.Name == b.Name }
	if !s.HasFormOf(first) || !slices.EqualFunc(first.Columns, s.Columns, sameName) {
		return fmt.Errorf("cluster %q returned its list in another format than one object of it", one.Name)
	}
	return nil
}

// closeLater ends the response to begin.
func (one *part) closeLater() {
	if one.later != nil {
		one.later.Close()
		one.later = nil
	}
}
