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

// The delay before a follower calls its member again doubles from minRejoin to maxRejoin. Jitter at most doubles it.
const (
	minRejoin, maxRejoin = 200 * time.Millisecond, 30 * time.Second
)

// start runs the follower in a goroutine, which ends with ctx at the latest.
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
			if f.single { // clients resume from the version of each event, and the events of relist have none
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

// finalError returns nil if the follower may call the member again.
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

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait + rand.N(wait)): //nolint:gosec // jitter
	}
}

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
	defer a.Close()
	f.reportStart(nil)
	return f.read(ctx, a.Body, a.Stop)
}

// isBehind reports whether the member is before f.version. It would send no events until it reaches that version.
func (f *follower) isBehind(ctx context.Context) bool {
	call := f.call(nil)
	call.Query = url.Values{"limit": {"1"}} // any object, whatever the client selects
	call.Header["Accept"] = []string{members.MetadataListAccept}
	now, _, a := f.client.ListMetadata(ctx, f.Target, call)
	return a.Err == nil && cursor.ValidOwn(now.ResourceVersion) && cursor.Before(now.ResourceVersion, f.version)
}
