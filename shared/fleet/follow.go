package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// A member that ends its watch is asked again after these times, growing, with jitter.
	rejoinFirst, rejoinMost = 200 * time.Millisecond, 30 * time.Second
	// A member of which nothing comes for so long, though kube-apiserver sends a bookmark each minute, is asked again.
	silence = 5 * time.Minute
)

// event is what a follower has read.
type event struct {
	from    *follower
	kind    string // ADDED, MODIFIED, DELETED, BOOKMARK; synced after all that was there; failed with err
	object  merge.Object
	columns []merge.Column // of a table's rows
	table   bool
	// version is the member's own as of this event; "" where more of the same moment follows.
	version string
	typ     metav1.TypeMeta // of objects; empty where it is not known yet
	err     error
}

const (
	synced = "synced" // all that was there was sent
	away   = "away"   // nothing of what is there can be had now
	failed = "failed" // the watch must end: err says why
)

// follower follows one member.
type follower struct {
	members.Target
	w       *watcher
	version string // from which to go on; "" lists first
	begins  bool   // without a version it begins with later events, not with a list
	answer  *naming.Answer
	layout  *merge.Layout // in which rows are laid out, of a table with these columns
	rows    *merge.Rows
	columns []merge.Column
	single  bool          // no other member took part when it began
	began   chan error    // gets the outcome of the first try, once
	told    bool          // it has
	delay   time.Duration // before the first try; 0 with the watch
	cancel  context.CancelFunc
}

// follow begins to follow a member, after that time.
func (w *watcher) follow(ctx context.Context, t members.Target, delay time.Duration) *follower {
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{cancel: cancel, Target: t, w: w, delay: delay, told: delay > 0, single: w.single, version: w.version[t.ID],
		begins: w.unlisted[t.ID], answer: w.q.called(t.Name), began: make(chan error, 1)}
	w.followed[t.ID] = f
	q := w.q
	go func() { // ends with ctx, that is with the watch
		defer cancel()
		defer func() { f.tell(context.Cause(ctx)) }()
		defer q.f.m.Recover(t.Name, func(e *members.Failure) {
			f.tell(e)
			f.send(ctx, event{from: f, kind: failed, err: members.Summary([]*members.Failure{e})})
		})
		f.run(ctx, q)
	}()
	return f
}

// tell says how the first try went. It reports whether nobody had been told before.
func (f *follower) tell(err error) bool {
	if f.told {
		return false
	}
	f.told = true
	f.began <- err
	return true
}

// run follows a member, through its ends and returns, until ctx ends or the watch must.
func (f *follower) run(ctx context.Context, q *ask) {
	pause := func(wait time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(wait + rand.N(wait)): //nolint:gosec // jitter
		}
	}
	wait := rejoinFirst
	if f.delay > 0 {
		pause(f.delay)
		wait = f.delay
	}
	for ctx.Err() == nil {
		began := time.Now()
		err := f.once(ctx, q)
		var e *members.Failure
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &e) && e.IsExpired() && f.version != "":
			if f.tell(err) {
				return
			}
			if f.single { // a difference has versions that are not the objects' own
				err = fmt.Errorf("%w: %w", errLost, err)
			} else {
				err = f.relist(ctx, q)
			}
		}
		switch {
		case errors.Is(err, errLost):
			f.send(ctx, event{from: f, kind: failed, err: status.New(status.Expired, f.Name, "the history of cluster %q is gone: list again", f.Name)})
			return
		case errors.Is(err, errHalf):
			f.send(ctx, event{from: f, kind: failed, err: half(f.Name)})
			return
		case errors.Is(err, scan.ErrTooLarge): // the member would send it again each time
			f.send(ctx, event{from: f, kind: failed, err: status.New(status.Expired, f.Name,
				"an event of cluster %q is over %d MiB: list again", f.Name, merge.MaxObject>>20)})
			return
		}
		f.tell(err)
		if time.Since(began) > rejoinMost {
			wait = rejoinFirst // it had been well
		}
		pause(wait)
		wait = min(2*wait, rejoinMost)
	}
}

// errHalf is for a list of which a part was delivered: what is gone by the next would stay at the client.
var errHalf = errors.New("the list broke off after it was begun")

// once lists the member, if nothing of it was delivered, and watches it until it ends.
func (f *follower) once(ctx context.Context, q *ask) error {
	switch {
	case f.version == "" && f.begins:
		if err := f.begin(ctx, q); err != nil {
			return err
		}
	case f.version == "":
		if err := f.initial(ctx, q); err != nil {
			return err
		}
	case f.wentBack(ctx, q):
		return &members.Failure{Cluster: f.Name, Code: http.StatusGone, Message: fmt.Sprintf("cluster %q is at an earlier version than it was, as after it was restored from a backup", f.Name)}
	}
	a := q.m.Do(ctx, f.Target, f.outgoing(q, url.Values{"watch": {"true"}, "resourceVersion": {f.version}, "allowWatchBookmarks": {"true"}}), nil)
	if a.Err != nil {
		return a.Err
	}
	defer members.CloseAll([]*members.Answer{a})
	f.tell(nil)
	return f.read(ctx, a.Body, a.Stop)
}

// wentBack reports whether the member is at an earlier version than that from which it is to be watched. kube-apiserver would say nothing then until
// it comes there again, and nothing ever of what happens until then. What it does not answer is taken for no: the watch will say more.
func (f *follower) wentBack(ctx context.Context, q *ask) bool {
	out := f.outgoing(q, nil)
	out.Query = url.Values{"limit": {"1"}} // whatever is chosen
	out.Header["Accept"] = []string{members.MetadataListAccept}
	now, _, a := q.m.ListMetadata(ctx, f.Target, out)
	return a.Err == nil && cursor.ValidOwn(now.ResourceVersion) && cursor.Before(now.ResourceVersion, f.version)
}

// outgoing is a call with the client's selectors and forms, and these parameters.
func (f *follower) outgoing(q *ask, params url.Values) members.Call {
	query := url.Values{}
	for _, key := range []string{"labelSelector", "fieldSelector", "includeObject"} {
		if v, ok := q.query[key]; ok {
			query[key] = v
		}
	}
	maps.Copy(query, params)
	path := q.route.Path
	if !f.Scope.All && q.res.Namespace == "" && len(f.Scope.Namespaces) == 1 {
		path = inNamespace(path, f.Scope.Namespaces[0])
	}
	if f.elsewhere() != nil && query.Get("includeObject") == "None" {
		query.Set("includeObject", "Metadata")
	}
	return members.Call{Method: http.MethodGet, Path: path, Query: query, Header: http.Header{"Accept": {f.w.accept}, "Accept-Encoding": {"identity"}}}
}

// elsewhere reports the namespaces to which events must be held; nil for all.
func (f *follower) elsewhere() []string {
	if !f.Scope.All && f.w.q.res.Namespace == "" && len(f.Scope.Namespaces) > 1 {
		return f.Scope.Namespaces
	}
	return nil
}

// unwatchable is for a member whose lists have no version to watch from.
func (f *follower) unwatchable() *members.Failure {
	return &members.Failure{Cluster: f.Name, Code: http.StatusMethodNotAllowed,
		Message: fmt.Sprintf("cluster %q lists this kind without a resourceVersion: it cannot be watched", f.Name)}
}

// begin makes the member's present version the one from which to go on, and sends no object.
func (f *follower) begin(ctx context.Context, q *ask) error {
	l, err := f.list(ctx, q, url.Values{"limit": {"1"}})
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.Drain(); err != nil {
		return err
	}
	if !cursor.ValidOwn(l.Metadata().ResourceVersion) {
		return f.unwatchable()
	}
	f.version = l.Metadata().ResourceVersion
	f.tell(nil)
	f.send(ctx, event{from: f, kind: synced, version: f.version, typ: l.typ()})
	return nil
}

// initial sends all that the member has, as ADDED, and then its version.
func (f *follower) initial(ctx context.Context, q *ask) error {
	l, err := f.list(ctx, q, nil)
	if err != nil {
		return err
	}
	defer l.close()
	if m := l.Metadata(); m != nil && !cursor.ValidOwn(m.ResourceVersion) {
		return f.unwatchable()
	}
	f.tell(nil)
	sent := false
	broken := func(err error) error {
		if sent {
			return fmt.Errorf("%w: %w", errHalf, err)
		}
		f.send(ctx, event{from: f, kind: away})
		return err
	}
	for {
		v, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return broken(err)
		}
		sent = true
		if l.object = v; !f.sendListed(ctx, "ADDED", l) {
			return nil
		}
	}
	if !cursor.ValidOwn(l.Metadata().ResourceVersion) {
		return broken(f.unwatchable())
	}
	f.version = l.Metadata().ResourceVersion
	f.send(ctx, event{from: f, kind: synced, version: f.version, typ: l.typ()})
	return nil
}

// takes reports whether an object, or row, is in a namespace that the watch shows.
func (f *follower) takes(o merge.Object, row bool) bool {
	only := f.elsewhere()
	if only == nil {
		return true
	}
	return slices.Contains(only, metadataText(o, row, "namespace"))
}

// read passes on a member's events until it ends its watch, or is silent for too long: stop ends it then.
func (f *follower) read(ctx context.Context, body io.Reader, stop func()) error {
	idle := time.AfterFunc(silence, stop)
	defer idle.Stop()
	broken := func(err error, format string, args ...any) error {
		return &members.Failure{Cluster: f.Name, Code: http.StatusBadGateway, Message: fmt.Sprintf("cluster %q ", f.Name) + fmt.Sprintf(format, args...), Err: err}
	}
	in := scan.NewReader(body, merge.MaxObject)
	in.Scanner.Field = "object"
	var columns []merge.Column
	for {
		text := in.Beginning('{')
		if errors.Is(in.Err(), io.EOF) {
			return nil
		} else if in.Err() != nil {
			return &members.Failure{Cluster: f.Name, Code: http.StatusBadGateway, Message: fmt.Sprintf("the watch of cluster %q broke off", f.Name), Err: in.Err()}
		}
		in.Limit(merge.MaxObject)
		idle.Reset(silence)
		kind, object, err := eventOf(text, in.Scanner.Found)
		if err != nil {
			return broken(err, "sends an event that cannot be read")
		}
		if kind == "ERROR" {
			code, _ := strconv.Atoi(string(scan.Lookup(object.Text, "code"))) // 0 stays
			return &members.Failure{Cluster: f.Name, Code: code, Message: scan.Text(scan.Lookup(object.Text, "message"))}
		}
		own := metadataText(object, false, "resourceVersion")
		if !cursor.ValidOwn(own) {
			return broken(nil, "sends an event without a resourceVersion")
		}
		if f.version != "" && cursor.Before(own, f.version) { // to go on from it would give what was given
			return broken(nil, "sends an event of version %s after one of %s", own, f.version)
		}
		typ, _ := merge.KindOf(object)
		out := event{from: f, kind: kind, object: object, version: own, typ: typ}
		switch {
		case !slices.Contains([]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}, kind):
			return broken(nil, "sends an event of type %.20q", kind)
		case kind == "BOOKMARK":
		case merge.IsTable(out.typ.Kind, out.typ.APIVersion):
			row, defs, err := rowOf(object)
			if err != nil {
				return broken(err, "sends an event that cannot be read")
			}
			if len(defs) > 0 {
				columns = defs // the first event has them
			}
			out.table, out.object, out.columns = true, row, columns
			fallthrough
		default:
			if !f.takes(out.object, out.table) {
				out.kind = "BOOKMARK" // it is delivered, as nothing
			}
		}
		f.version = own
		if !f.send(ctx, out) {
			return nil
		}
	}
}

// send gives an event to the watcher; false if the watch ends.
func (f *follower) send(ctx context.Context, e event) bool {
	select {
	case f.w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
