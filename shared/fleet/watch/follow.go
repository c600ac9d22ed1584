package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// A follower calls a member that ended its watch again after a delay, which doubles from minRejoin to maxRejoin, with
// jitter.
const (
	minRejoin, maxRejoin = 200 * time.Millisecond, 30 * time.Second
)

// start runs the follower in a goroutine that ends with ctx.
func (f *follower) start(ctx context.Context) {
	go func() {
		defer f.cancel()
		defer func() { f.reportStart(context.Cause(ctx)) }()
		defer f.client.Recover(f.Name, func(e *members.Failure) {
			f.reportStart(e)
			f.send(ctx, event{from: f, typ: failed, err: members.Summary([]*members.Failure{e})})
		})
		f.run(ctx)
	}()
}

// run follows the member until ctx ends or the watch must end. It calls the member again whenever its watch ends.
func (f *follower) run(ctx context.Context) {
	wait := minRejoin
	if f.delay > 0 {
		pause(ctx, f.delay)
		wait = f.delay
	}
	for ctx.Err() == nil {
		began := time.Now()
		err := f.followOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		var e *members.Failure
		if errors.As(err, &e) && e.IsExpired() && f.version != "" {
			if f.reportStart(err) {
				return
			}
			if f.single { // the versions of a difference are not those of the objects
				err = fmt.Errorf("%w: %w", errHistoryLost, err)
			} else {
				err = f.relist(ctx)
			}
		}
		if final := f.finalError(err); final != nil {
			f.send(ctx, event{from: f, typ: failed, err: final})
			return
		}
		f.reportStart(err)
		if time.Since(began) > maxRejoin {
			wait = minRejoin // the member was healthy
		}
		pause(ctx, wait)
		wait = min(2*wait, maxRejoin)
	}
}

// finalError returns the error with which the watch must end, or nil if the follower may call the member again.
func (f *follower) finalError(err error) error {
	switch {
	case errors.Is(err, errHistoryLost):
		return status.New(status.Expired, f.Name, "the history of cluster %q is gone: list again", f.Name)
	case errors.Is(err, errPartialList):
		return partialList(f.Name)
	case errors.Is(err, scan.ErrTooLarge): // the member would send it again each time
		return status.New(status.Expired, f.Name, "an event of cluster %q is over %d MiB: list again", f.Name,
			merge.MaxObject>>20)
	}
	return nil
}

// pause blocks for a time with jitter, or until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait + rand.N(wait)): //nolint:gosec // jitter
	}
}

// followOnce lists the member if nothing of it was delivered, and then passes on its events until its watch ends.
func (f *follower) followOnce(ctx context.Context) error {
	switch {
	case f.version == "" && f.skipInitial:
		if err := f.startLive(ctx); err != nil {
			return err
		}
	case f.version == "":
		if err := f.sendInitial(ctx); err != nil {
			return err
		}
	case f.isBehind(ctx):
		return members.NewFailure(f.Name, http.StatusGone, nil,
			"cluster %q is at an earlier version than before, as after a restore from a backup", f.Name)
	}
	a := f.client.Do(ctx, f.Target, f.call(url.Values{
		"watch": {"true"}, "resourceVersion": {f.version}, "allowWatchBookmarks": {"true"},
	}), nil)
	if a.Err != nil {
		return a.Err
	}
	defer members.CloseAll([]*members.Answer{a})
	f.reportStart(nil)
	return f.read(ctx, a.Body, a.Stop)
}

// isBehind reports whether the member is at an earlier version than that from which it is to be watched. kube-apiserver
// would send no events until it reaches that version again. A member that does not respond is not behind.
func (f *follower) isBehind(ctx context.Context) bool {
	call := f.call(nil)
	call.Query = url.Values{"limit": {"1"}} // any object, whatever the client selects
	call.Header["Accept"] = []string{members.MetadataListAccept}
	now, _, a := f.client.ListMetadata(ctx, f.Target, call)
	return a.Err == nil && cursor.ValidOwn(now.ResourceVersion) && cursor.Before(now.ResourceVersion, f.version)
}
