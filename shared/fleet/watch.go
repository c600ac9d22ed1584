package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// reviewEvery is how often a watch looks for clusters that came, or that it may not follow any more.
	reviewEvery = 5 * time.Second
	// A member that ends its watch is asked again after these times, growing, with jitter.
	rejoinFirst, rejoinMost = 200 * time.Millisecond, 30 * time.Second
	// A member of which nothing comes for so long, though kube-apiserver sends a bookmark each minute, is asked again.
	silence = 5 * time.Minute
)

// initialEventsEnd marks the bookmark after which a watch is live (WatchList).
const initialEventsEnd = "k8s.io/initial-events-end"

// watcher is one watch on several members. Followers read, one each; the watcher alone writes, and so knows what was delivered.
//
// Its version holds, for each member, what of that member's was delivered whole: a member is not in it until all that it has was, and what
// an event says never covers one that comes later. A client that goes on from any event's version misses nothing.
type watcher struct {
	q         *ask
	accept    string
	bookmarks bool // the client takes them
	list      bool // it wants all that is there, and to be told when that was (WatchList)
	events    chan event
	version   cursor.Version
	followed  map[uint64]*follower
	shown     map[uint64]bool // members of which the client has seen something
	pending   map[uint64]bool // members that were there when it began, and have not sent all that they have
	layout    *merge.Layout   // of a table, as its first event has it
	kind      metav1.TypeMeta // of objects, once one has come
}

// event is what a follower has read.
type event struct {
	from    *follower
	kind    string // ADDED, MODIFIED, DELETED, BOOKMARK; synced after all that was there; failed with err
	object  jsontext.Value
	columns []merge.Column // of a table's rows
	table   bool
	// version is the member's own as of this event; "" where more of the same moment follows.
	version string
	typ     metav1.TypeMeta // of objects; empty where it is not known yet
	err     error
}

const (
	synced = "synced" // all that was there was sent
	failed = "failed" // the watch must end: err says why
)

// follower follows one member.
type follower struct {
	target
	w       *watcher
	version string // from which to go on; "" lists first
	answer  *naming.Answer
	rows    *merge.Rows
	columns []merge.Column
	began   chan error    // gets the outcome of the first try, once
	told    bool          // it has
	delay   time.Duration // before the first try; 0 with the watch
	cancel  context.CancelFunc
}

// watch returns the call that follows the targets.
func (q *ask) watch(targets []target) (*forward.Call, error) {
	// Members are watched by list; the older form, /watch/ before the resource and maybe a name after it, says the same.
	q.route.Path = q.listPath()
	if q.res.Name != "" {
		one := fields.OneTermEqualSelector("metadata.name", q.res.Name).String()
		if more := q.query.Get("fieldSelector"); more != "" {
			one += "," + more
		}
		q.query.Set("fieldSelector", one)
	}
	accept, err := acceptJSON(q.r.Header)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		q: q, accept: accept, events: make(chan event), version: cursor.Version{}, followed: map[uint64]*follower{}, shown: map[uint64]bool{}, pending: map[uint64]bool{},
		bookmarks: isTrue(q.query.Get("allowWatchBookmarks")), list: isTrue(q.query.Get("sendInitialEvents")),
	}
	var ends time.Duration
	if s := q.query.Get("timeoutSeconds"); s != "" {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return nil, status.New(status.BadRequest, "", "the parameter timeoutSeconds is %q; want a number", s)
		}
		ends = time.Duration(n) * time.Second
	}
	if err := w.start(targets); err != nil {
		return nil, err
	}
	rt := q.route
	return &forward.Call{Route: rt, Query: q.raw, Carry: func(rw http.ResponseWriter, r *http.Request) error { return w.run(rw, r, targets, ends) }}, nil
}

// start reads from which version of each target the watch goes.
func (w *watcher) start(targets []target) error {
	v := w.q.query.Get("resourceVersion")
	switch {
	case w.list || v == "" || v == "0":
		return nil // all that is there
	case cursor.Composite(v):
		asked, err := cursor.ParseVersion(v)
		if err != nil {
			return status.New(status.BadRequest, "", "%w", err)
		}
		for id := range asked {
			if !slices.ContainsFunc(targets, func(t target) bool { return t.id == id }) {
				return gone()
			}
		}
		w.version = asked
		return nil
	case len(targets) == 1 && cursor.ValidOwn(v):
		w.version = cursor.Version{targets[0].id: v}
		return nil
	}
	// An object's own: it says nothing of other clusters.
	return status.New(status.Expired, "", "the resourceVersion %.64q is not one of the fleet's: list again", v)
}

func gone() error {
	return status.New(status.Expired, "", "a cluster is not in the fleet any more, or may not be called any more: list again")
}

// run carries the watch until the client or the time ends it.
func (w *watcher) run(rw http.ResponseWriter, r *http.Request, targets []target, ends time.Duration) error {
	q := *w.q // with the stream's request
	q.r = r
	w.q = &q
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var began []*follower
	for _, t := range targets {
		if _, known := w.version[t.id]; !known {
			w.pending[t.id] = true
		}
		began = append(began, w.follow(ctx, t, 0))
	}
	var failures []*failure
	for _, f := range began {
		err := <-f.began // within the deadline
		var e *failure
		switch {
		case err == nil:
			continue
		case errors.As(err, &e):
			failures = append(failures, e)
			delete(w.pending, f.id) // it is taken in when it is there
		default:
			return err
		}
	}
	for _, e := range failures {
		if e.code == http.StatusGone {
			return summary([]*failure{e})
		}
	}
	if len(failures) == len(targets) || len(failures) > 0 && q.strict {
		return summary(failures)
	}
	warn(rw.Header(), failures)
	h := rw.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Content-Type-Options", "nosniff")
	rw.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(rw).Flush
	if err := flush(); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	return w.deliver(ctx, rw, flush, ends)
}

// deliver writes events as they come.
func (w *watcher) deliver(ctx context.Context, rw io.Writer, flush func() error, ends time.Duration) error {
	var end <-chan time.Time
	if ends > 0 {
		timer := time.NewTimer(ends)
		defer timer.Stop()
		end = timer.C
	}
	review := time.NewTicker(reviewEvery)
	defer review.Stop()
	var out []byte
	var err error
	told := !w.list
	for {
		out = out[:0]
		last := false
		select {
		case <-ctx.Done():
			var why *status.Error
			if cause := context.Cause(ctx); !errors.Is(cause, forward.ErrFinished) && errors.As(cause, &why) {
				return why
			}
			return nil // all that was sent is whole
		case <-end:
			return nil
		case <-review.C:
			if err := w.review(ctx); err != nil {
				out, last = ended(out, err), true
			}
		case e := <-w.events:
			switch {
			case w.followed[e.from.id] != e.from: // of one that is not followed any more
			case e.kind == failed:
				out, last = ended(out, e.err), true
			default:
				if out, err = w.write(out, e); err == nil {
					break
				}
				if out = out[:0]; !w.again(ctx, e, err) {
					out, last = ended(out, half(e.from.Name)), true
				}
			}
		}
		if !told && !last && len(w.pending) == 0 {
			told = true
			out = w.bookmark(out, map[string]string{initialEventsEnd: "true"})
		}
		if len(out) > 0 {
			if _, err := rw.Write(out); err != nil || flush() != nil {
				return nil //nolint:nilerr // the client is gone, or the stream was ended
			}
		}
		if last {
			return nil
		}
	}
}

// again follows anew, after a while, a member of which an event cannot be passed on, from where its events ended: it is as one that went
// away. It reports whether that can be: what the beginning of a list showed would stay at the client.
func (w *watcher) again(ctx context.Context, e event, why error) bool {
	f := e.from
	w.q.f.cfg.Log.Warn("an event of a cluster cannot be passed on: the cluster is asked again", "cluster", f.Name, "error", why.Error())
	if e.version == "" && w.shown[f.id] {
		return false
	}
	f.cancel()
	delete(w.pending, f.id) // it is taken in when it can be
	w.follow(ctx, f.target, min(2*max(f.delay, rejoinFirst), rejoinMost))
	return true
}

// half is for a member of whose list a part was delivered.
func half(cluster string) error {
	return status.New(status.Expired, cluster, "the list of cluster %q broke off: list again", cluster)
}

// review takes in clusters that came, and ends a watch on one that may not be followed any more: its objects must go, and only a new list
// says which these are.
func (w *watcher) review(ctx context.Context) error {
	q := w.q
	var err error
	if q.inv, err = q.f.inventory(ctx); err != nil {
		return err
	}
	targets, err := q.targets()
	if err != nil {
		switch status.From(err).Reason {
		case status.Forbidden, status.UnknownCluster, status.NotGlobal:
			return gone()
		default:
			return err
		}
	}
	now := map[uint64]bool{}
	for _, t := range targets {
		if t.Mode() == clusterv1alpha1.Direct && !t.MayDirect(q.user.Name) {
			continue
		}
		now[t.id] = true
		if f := w.followed[t.id]; f == nil {
			w.follow(ctx, t, 0)
		} else if f.scope.All != t.scope.All || !slices.Equal(f.scope.Namespaces, t.scope.Namespaces) {
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

// ended appends the event that tells a client why a watch ends.
func ended(out []byte, err error) []byte {
	e := status.From(err)
	st := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: e.Message,
		Code: int32(e.Code()), Reason: e.Kubernetes()}
	text, err := json.Marshal(map[string]any{"type": "ERROR", "object": st})
	if err != nil {
		panic(err) // a Status always marshals
	}
	return append(append(out, text...), '\n')
}

// write appends an event of a member as the client sees it, and notes what is delivered with it; nothing where it fails.
func (w *watcher) write(out []byte, e event) ([]byte, error) {
	f := e.from
	before, layout := w.version[f.id], w.layout
	if e.version != "" {
		w.version[f.id] = e.version
	}
	if e.typ.Kind != "" {
		w.kind = e.typ
	}
	if e.kind == synced || e.kind == "BOOKMARK" {
		begun := len(w.pending) == 0 // before that, nothing is to be gone on from
		if e.kind == synced {
			delete(w.pending, f.id)
		}
		if !w.bookmarks || !begun {
			return out, nil
		}
		return w.bookmark(out, nil), nil
	}
	out, err := w.object(out, e)
	if err == nil {
		w.shown[f.id] = true
		return out, nil
	}
	if w.layout = layout; before != "" {
		w.version[f.id] = before
	} else {
		delete(w.version, f.id)
	}
	return out, err
}

// object appends an event of an object.
func (w *watcher) object(out []byte, e event) ([]byte, error) {
	f := e.from
	// What was there before keeps the member's own version, as objects of lists do: a client that goes on from it is told to list again.
	composite := ""
	f.answer.SetVersion(nil)
	if e.version != "" {
		composite = w.version.String()
		f.answer.SetVersion(func(string) string { return composite })
	}
	out = append(append(append(out, `{"type":"`...), e.kind...), `","object":`...)
	var err error
	if !e.table {
		out, err = f.answer.Append(out, e.object)
		return append(out, "}\n"...), err
	}
	definitions := "[]"
	if w.layout == nil {
		w.layout = merge.NewLayout(e.columns)
		definitions = string(w.layout.Definitions())
	}
	if f.rows == nil || !slices.EqualFunc(f.columns, e.columns, func(a, b merge.Column) bool { return a.Name == b.Name }) {
		f.columns, f.rows = e.columns, w.layout.For(f.Name, e.columns, f.answer)
	}
	out = fmt.Appendf(out, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q},"columnDefinitions":%s,"rows":[`, composite, definitions)
	out, err = f.rows.Append(out, e.object)
	return append(out, "]}}\n"...), err
}

// bookmark appends a bookmark of all that was delivered.
func (w *watcher) bookmark(out []byte, annotations map[string]string) []byte {
	object := map[string]any{"metadata": map[string]any{"resourceVersion": w.version.String(), "creationTimestamp": nil}}
	if annotations != nil {
		object["metadata"].(map[string]any)["annotations"] = annotations
	}
	if w.kind.Kind != "" {
		object["kind"], object["apiVersion"] = w.kind.Kind, w.kind.APIVersion
	}
	text, err := json.Marshal(map[string]any{"type": "BOOKMARK", "object": object})
	if err != nil {
		panic(err) // strings always marshal
	}
	return append(append(out, text...), '\n')
}

// follow begins to follow a member, after that time.
func (w *watcher) follow(ctx context.Context, t target, delay time.Duration) *follower {
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{cancel: cancel, target: t, w: w, delay: delay, told: delay > 0, version: w.version[t.id], answer: naming.NewAnswer(t.Name, w.q.named != ""), began: make(chan error, 1)}
	w.followed[t.id] = f
	q := w.q
	go func() { // ends with ctx, that is with the watch
		defer cancel()
		defer q.f.guard(t.Name, func(e *failure) {
			f.tell(e)
			f.send(ctx, event{from: f, kind: failed, err: summary([]*failure{e})})
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
	defer func() { f.tell(context.Cause(ctx)) }()
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
		var e *failure
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &e) && e.code == http.StatusGone && f.version != "":
			if f.tell(err) {
				return
			}
			err = f.relist(ctx, q)
		}
		switch {
		case errors.Is(err, errLost):
			f.send(ctx, event{from: f, kind: failed, err: status.New(status.Expired, f.Name, "the history of cluster %q is gone: list again", f.Name)})
			return
		case errors.Is(err, errHalf):
			f.send(ctx, event{from: f, kind: failed, err: half(f.Name)})
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
	if f.version == "" {
		if err := f.initial(ctx, q); err != nil {
			return err
		}
	}
	a := q.call(ctx, f.target, f.outgoing(q, url.Values{"watch": {"true"}, "resourceVersion": {f.version}, "allowWatchBookmarks": {"true"}}), nil)
	if a.err != nil {
		return a.err
	}
	defer stopAll([]*answer{a})
	f.tell(nil)
	return f.read(ctx, a.body, a.stop)
}

// outgoing is a call with the client's selectors and forms, and these parameters.
func (f *follower) outgoing(q *ask, params url.Values) outgoing {
	query := url.Values{}
	for _, key := range []string{"labelSelector", "fieldSelector", "includeObject"} {
		if v, ok := q.query[key]; ok {
			query[key] = v
		}
	}
	maps.Copy(query, params)
	path := q.route.Path
	if !f.scope.All && q.res.Namespace == "" && len(f.scope.Namespaces) == 1 {
		path = inNamespace(path, f.scope.Namespaces[0])
	}
	if f.elsewhere() != nil && query.Get("includeObject") == "None" {
		query.Set("includeObject", "Metadata")
	}
	return outgoing{method: http.MethodGet, path: path, query: query, header: http.Header{"Accept": {f.w.accept}, "Accept-Encoding": {"identity"}}}
}

// elsewhere reports the namespaces to which events must be held; nil for all.
func (f *follower) elsewhere() []string {
	if !f.scope.All && f.w.q.res.Namespace == "" && len(f.scope.Namespaces) > 1 {
		return f.scope.Namespaces
	}
	return nil
}

// initial sends all that the member has, as ADDED, and then its version.
func (f *follower) initial(ctx context.Context, q *ask) error {
	l, err := f.list(ctx, q, nil)
	if err != nil {
		return err
	}
	defer l.close()
	f.tell(nil)
	for {
		v, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%w: %w", errHalf, err)
		}
		if l.object = v; !f.sendListed(ctx, "ADDED", l) {
			return nil
		}
	}
	if !cursor.ValidOwn(l.Metadata().ResourceVersion) {
		return &failure{cluster: f.Name, code: http.StatusMethodNotAllowed, message: fmt.Sprintf("cluster %q lists this kind without a resourceVersion: it cannot be watched", f.Name)}
	}
	f.version = l.Metadata().ResourceVersion
	f.send(ctx, event{from: f, kind: synced, version: f.version, typ: l.typ()})
	return nil
}

// withKind gives an object of a list its kind, which kube-apiserver leaves out there and writes into events.
func withKind(object jsontext.Value, listKind, apiVersion string) jsontext.Value {
	var have struct{ Kind string }
	kind := strings.TrimSuffix(listKind, "List")
	if err := json.Unmarshal(object, &have); err != nil || have.Kind != "" || kind == "" {
		return object
	}
	head, err := json.Marshal(metav1.TypeMeta{Kind: kind, APIVersion: apiVersion})
	if err != nil {
		panic(err) // strings always marshal
	}
	out := head[:len(head)-1]
	if rest := strings.TrimSpace(string(object[1:])); rest != "}" {
		out = append(out, ',')
	}
	return append(out, object[1:]...)
}

// takes reports whether an object, or row, is in a namespace that the watch shows.
func (f *follower) takes(v jsontext.Value, row bool) bool {
	only := f.elsewhere()
	if only == nil {
		return true
	}
	var o struct {
		Metadata struct{ Namespace string }
		Object   struct{ Metadata struct{ Namespace string } }
	}
	_ = json.Unmarshal(v, &o) // what has none is in none
	if row {
		return slices.Contains(only, o.Object.Metadata.Namespace)
	}
	return slices.Contains(only, o.Metadata.Namespace)
}

// read passes on a member's events until it ends its watch, or is silent for too long: stop ends it then.
func (f *follower) read(ctx context.Context, body io.Reader, stop func()) error {
	limited := &eventReader{r: body}
	idle := time.AfterFunc(silence, stop)
	defer idle.Stop()
	dec := jsontext.NewDecoder(limited, merge.Syntax...)
	var columns []merge.Column
	for {
		limited.left = merge.MaxObject
		text, err := dec.ReadValue()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return &failure{cluster: f.Name, code: http.StatusBadGateway, message: fmt.Sprintf("the watch of cluster %q broke off", f.Name), err: err}
		}
		var e struct {
			Type   string
			Object json.RawMessage
		}
		idle.Reset(silence)
		var head struct {
			Kind, APIVersion  string
			Metadata          struct{ ResourceVersion, Namespace string }
			Code              int
			Message           string
			ColumnDefinitions json.RawMessage
			Rows              []json.RawMessage
		}
		if err := json.Unmarshal(text, &e); err != nil {
			return &failure{cluster: f.Name, code: http.StatusBadGateway, message: fmt.Sprintf("cluster %q sends an event that cannot be read", f.Name), err: err}
		}
		_ = json.Unmarshal(e.Object, &head) // an object of any kind: a field that is of another type in it stays empty
		if e.Type == "ERROR" {
			return &failure{cluster: f.Name, code: head.Code, message: head.Message}
		}
		own := head.Metadata.ResourceVersion
		if !cursor.ValidOwn(own) {
			return &failure{cluster: f.Name, code: http.StatusBadGateway, message: fmt.Sprintf("cluster %q sends an event without a resourceVersion", f.Name)}
		}
		out := event{from: f, kind: e.Type, object: jsontext.Value(e.Object), version: own, typ: metav1.TypeMeta{Kind: head.Kind, APIVersion: head.APIVersion}}
		switch {
		case !slices.Contains([]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}, e.Type):
			return &failure{cluster: f.Name, code: http.StatusBadGateway, message: fmt.Sprintf("cluster %q sends an event of type %.20q", f.Name, e.Type)}
		case e.Type == "BOOKMARK":
		case head.Kind == "Table":
			if len(head.Rows) != 1 {
				return &failure{cluster: f.Name, code: http.StatusBadGateway, message: fmt.Sprintf("cluster %q sends a table of %d rows as an event", f.Name, len(head.Rows))}
			}
			if defs, err := merge.Columns(jsontext.Value(head.ColumnDefinitions)); err == nil && len(defs) > 0 {
				columns = defs // the first event has them
			}
			out.table, out.object, out.columns = true, jsontext.Value(head.Rows[0]), columns
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

// eventReader fails where an event is over its size.
type eventReader struct {
	r    io.Reader
	left int64
}

func (e *eventReader) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, merge.ErrTooLarge
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	return n, err
}
