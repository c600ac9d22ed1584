package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// A follower calls a member that ended its watch again after a delay, which doubles from minRejoin to maxRejoin, with
// jitter. It also calls again a member that sent nothing for maxSilence. kube-apiserver sends a bookmark each minute.
const (
	minRejoin, maxRejoin = 200 * time.Millisecond, 30 * time.Second
	maxSilence           = 5 * time.Minute
)

// session has what all followers of a watch share.
type session struct {
	client *members.Client
	req    *request.Request
	accept string
	events chan event
}

// event is an event of one member.
type event struct {
	from    *follower
	typ     string
	object  merge.Object
	columns []merge.Column // columns of the rows, in a table
	isRow   bool
	// version is the member's own as of this event. It is "" if more events of the same moment follow.
	version string
	kind    metav1.TypeMeta // of objects; empty if it is not known yet
	err     error           // the cause of a failed event
}

// follower reads the events of one member.
type follower struct {
	members.Target
	*session
	version     string // from which it resumes; "" lists first
	skipInitial bool   // without a version, it starts with later events instead of a list
	single      bool   // it was the only member when it began
	started     chan error
	hasStarted  bool          // started has its value
	delay       time.Duration // before the first call; 0 for members that the watch began with
	cancel      context.CancelFunc
}

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

// reportStart sends the outcome of the first call to started, once. It reports whether it did.
func (f *follower) reportStart(err error) bool {
	if f.hasStarted {
		return false
	}
	f.hasStarted = true
	f.started <- err
	return true
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
	case f.wentBack(ctx):
		return members.NewFailure(f.Name, http.StatusGone, nil,
			"cluster %q is at an earlier version than it was, as after it was restored from a backup", f.Name)
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

// wentBack reports whether the member is at an earlier version than that from which it is to be watched. kube-apiserver
// would send no events until it reaches that version again. A member that does not respond is not behind.
func (f *follower) wentBack(ctx context.Context) bool {
	call := f.call(nil)
	call.Query = url.Values{"limit": {"1"}} // any object, whatever the client selects
	call.Header["Accept"] = []string{members.MetadataListAccept}
	now, _, a := f.client.ListMetadata(ctx, f.Target, call)
	return a.Err == nil && cursor.ValidOwn(now.ResourceVersion) && cursor.Before(now.ResourceVersion, f.version)
}

// call returns a call with the client's selectors and forms, and these parameters.
func (f *follower) call(params url.Values) members.Call {
	client, query := f.req.Query(), url.Values{}
	for _, key := range []string{"labelSelector", "fieldSelector", "includeObject"} {
		if v, ok := client[key]; ok {
			query[key] = v
		}
	}
	maps.Copy(query, params)
	path := f.req.Route.Path
	if !f.Scope.All && f.req.Resource.Namespace == "" && len(f.Scope.Namespaces) == 1 {
		path = request.PathInNamespace(path, f.Scope.Namespaces[0])
	}
	if f.namespaces() != nil && query.Get("includeObject") == "None" {
		query.Set("includeObject", "Metadata") // it has the namespace of a row
	}
	return members.Call{
		Method: http.MethodGet, Path: path, Query: query,
		Header: http.Header{"Accept": {f.accept}, "Accept-Encoding": {"identity"}},
	}
}

// namespaces returns the namespaces whose events the client gets; nil for all.
func (f *follower) namespaces() []string {
	if !f.Scope.All && f.req.Resource.Namespace == "" && len(f.Scope.Namespaces) > 1 {
		return f.Scope.Namespaces
	}
	return nil
}

// covers reports whether an object or row is in a namespace whose events the client gets.
func (f *follower) covers(o merge.Object, isRow bool) bool {
	only := f.namespaces()
	if only == nil {
		return true
	}
	return slices.Contains(only, metadataText(o, isRow, "namespace"))
}

// send sends an event to the watcher. It reports false if the watch ends.
func (f *follower) send(ctx context.Context, e event) bool {
	select {
	case f.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
