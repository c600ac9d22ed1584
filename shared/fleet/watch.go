package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// initialEventsEnd marks the bookmark after which a watch is live (WatchList).
const initialEventsEnd = "k8s.io/initial-events-end"

// watcher is one watch of several members. Followers read, one for each member. The watcher alone writes to the client,
// so it knows what was delivered.
//
// version maps each member to the last resourceVersion that was fully delivered. A member is absent until its initial
// list is complete. Until then, the versions in events do not resume: a client that used one gets 410, since objects that
// were deleted meanwhile would stay at the client. A client that resumes from any other version misses no event.
//
// With a single member, events have that member's own versions, which resume as at the member.
type watcher struct {
	q         *ask
	accept    string
	bookmarks bool // the client takes them
	list      bool // it wants all that is there, and to be told when that was (WatchList)
	now       bool // it wants nothing that is there (sendInitialEvents=false)
	events    chan event
	version   cursor.Version
	single    bool // see singleMember: versions are the member's own
	followed  map[uint64]*follower
	shown     map[uint64]bool // members of which the client has seen something
	pending   map[uint64]bool // members that were there when it began, and have not sent all that they have
	unlisted  map[uint64]bool // members whose objects are not sent, only later events
	layout    *merge.Layout   // of a table, as the client knows it
	objects   kinds           // what members' first objects are
	lists     kinds           // what their lists and bookmarks say that these are
	kind      metav1.TypeMeta // what objects are, as most members' first objects say
	marked    metav1.TypeMeta // the same, with what lists say, for bookmarks
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
		q: q, accept: accept, events: make(chan event), version: cursor.Version{}, single: singleMember(targets),
		followed: map[uint64]*follower{}, shown: map[uint64]bool{}, pending: map[uint64]bool{}, unlisted: map[uint64]bool{},
		objects: kinds{}, lists: kinds{}, bookmarks: isTrue(q.query.Get("allowWatchBookmarks")),
		list: isTrue(q.query.Get("sendInitialEvents")),
	}
	var ends time.Duration
	if s := q.query.Get("timeoutSeconds"); s != "" {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return nil, status.New(status.BadRequest, "", "the parameter timeoutSeconds is %q; want a number", s)
		}
		ends = time.Duration(n) * time.Second
	}
	// What kube-apiserver does not take.
	switch match := q.query.Get("resourceVersionMatch"); {
	case q.query.Has("sendInitialEvents") && match != "NotOlderThan":
		return nil, status.New(status.BadRequest, "", "a watch with sendInitialEvents wants resourceVersionMatch=NotOlderThan, too; this has %.40q", match)
	case !q.query.Has("sendInitialEvents") && match != "":
		return nil, status.New(status.BadRequest, "", "a watch takes resourceVersionMatch only with sendInitialEvents")
	case q.query.Get("continue") != "":
		return nil, status.New(status.BadRequest, "", "a watch takes no continue")
	}
	if err := w.start(targets); err != nil {
		return nil, err
	}
	return &forward.Call{Carry: func(rw http.ResponseWriter, r *http.Request) error { return w.run(rw, r, targets, ends) }}, nil
}

// start reads from which version of each target the watch goes.
func (w *watcher) start(targets []target) error {
	v := w.q.query.Get("resourceVersion")
	switch {
	case w.list || v == "" || v == "0": // all that is there, or only later events
		w.now = !w.list && w.q.query.Has("sendInitialEvents")
		return nil
	case cursor.Composite(v):
		asked, err := cursor.ParseVersion(v)
		if err != nil {
			return status.New(status.BadRequest, "", "%w", err)
		}
		if w.single { // its events have smaller numbers
			return status.New(status.Expired, "", "watch from a version of several clusters: one is covered now; list again")
		}
		for id := range asked {
			if !slices.ContainsFunc(targets, func(t target) bool { return t.id == id }) {
				return gone()
			}
		}
		w.version = asked
		return nil
	case w.single && cursor.ValidOwn(v):
		w.version = cursor.Version{targets[0].id: v}
		return nil
	}
	return notOfFleet(v)
}

// notOfFleet is the error for a cluster's own resourceVersion where several are asked. It covers none of the others.
func notOfFleet(v string) error {
	return status.New(status.Expired, "",
		"the resourceVersion %.64q is not one of the fleet's: list again", v)
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
			if w.now {
				w.unlisted[t.id] = true
			}
		}
		began = append(began, w.follow(ctx, t, 0))
	}
	var failures, lost []*failure
	for _, f := range began {
		err := <-f.began // within the deadline
		var e *failure
		switch {
		case err == nil:
			continue
		case errors.As(err, &e):
			failures = append(failures, e)
			delete(w.pending, f.id) // it is taken in when it is there
			if e.expired() && w.version[f.id] != "" {
				lost = append(lost, e)
			}
		default:
			return err
		}
	}
	if len(lost) > 0 {
		return expired(lost)
	}
	if len(failures) == len(targets) || len(failures) > 0 && q.strict {
		return q.incomplete(failures)
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

// batch is how many events a watch takes at most before it looks whether it must end: also of those of which the client sees nothing.
const batch = 64

// deliver writes events as they come; those that wait already go out together.
func (w *watcher) deliver(ctx context.Context, rw io.Writer, flush func() error, ends time.Duration) error {
	var end <-chan time.Time
	if ends > 0 {
		timer := time.NewTimer(ends)
		defer timer.Stop()
		end = timer.C
	}
	review := time.NewTicker(reviewEvery)
	defer review.Stop()
	var looked <-chan sight // nil while nobody looks
	var out []byte
	taken := 0 // since the last look
	send := func() error {
		if taken = 0; len(out) == 0 {
			return nil
		}
		_, err := rw.Write(out)
		if out = out[:0]; cap(out) > 2*sinkSize { // what a large object took is not kept
			out = nil
		}
		return errors.Join(err, flush())
	}
	told := !w.list || !w.bookmarks
	for last := false; !last; taken++ {
		var e event
		if len(out) > 0 && len(out) < sinkSize && taken < batch {
			select {
			case e = <-w.events:
			default:
			}
		}
		if e.from == nil {
			if send() != nil {
				return nil // the client is gone, or the stream was ended
			}
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
				if looked == nil { // else clusters that hang hold the last look up
					looked = w.look(ctx)
				}
			case s := <-looked:
				looked = nil
				if err := w.review(ctx, s); err != nil {
					out, last = ended(out, err), true
				}
			case e = <-w.events:
			}
		}
		if e.from != nil {
			out, last = w.take(ctx, out, e)
		}
		if !told && !last && len(w.pending) == 0 && w.whole() {
			told = true
			out = w.bookmark(out, map[string]string{initialEventsEnd: "true"})
		}
	}
	_ = send()
	return nil
}

// take appends an event as the client sees it, and reports whether the watch ends with it.
func (w *watcher) take(ctx context.Context, out []byte, e event) (text []byte, last bool) {
	if w.followed[e.from.id] != e.from { // of one that is not followed any more
		return out, false
	}
	if e.kind == failed {
		return ended(out, e.err), true
	}
	text, err := w.guarded(out, e)
	if err == nil {
		return text, false
	}
	var unforeseen *failure
	if errors.As(err, &unforeseen) {
		return ended(out, summary([]*failure{unforeseen})), true
	} else if !w.again(ctx, e, err) {
		return ended(out, half(e.from.Name)), true
	}
	return out, false
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

// guarded is write that makes a panic the member's failure, after which nothing more may be written: w no longer says what was delivered.
func (w *watcher) guarded(out []byte, e event) (text []byte, err error) {
	defer w.q.f.guard(e.from.Name, func(unforeseen *failure) { err = unforeseen })
	return w.write(out, e)
}

// write appends an event of a member as the client sees it, and notes what is delivered with it; nothing where it fails.
func (w *watcher) write(out []byte, e event) ([]byte, error) {
	f := e.from
	if err := w.heard(e); err != nil {
		return out, err
	}
	before, layout := w.version[f.id], w.layout
	if e.version != "" {
		w.version[f.id] = e.version
	}
	if e.kind == away {
		delete(w.pending, f.id) // it is taken in when it is there
		return out, nil
	}
	if e.kind == synced || e.kind == "BOOKMARK" {
		begun := len(w.pending) == 0 // before that, nothing is to be gone on from
		if e.kind == synced {
			delete(w.pending, f.id)
		}
		if !w.bookmarks || !begun || !w.whole() {
			return out, nil
		}
		return w.bookmark(out, nil), nil
	}
	out, err := w.object(out, e)
	if err == nil {
		w.shown[f.id] = true
		return out, nil
	}
	if w.layout, f.layout = layout, nil; before != "" {
		w.version[f.id] = before
	} else {
		delete(w.version, f.id)
	}
	return out, err
}

// heard notes what a member says of what kind objects are, and fails where an object of it is of another than most members' are.
func (w *watcher) heard(e event) error {
	said, isObject := w.lists, e.kind == "ADDED" || e.kind == "MODIFIED" || e.kind == "DELETED"
	switch {
	case e.typ.Kind == "" && isObject:
		return errors.New("an object of it does not say of what kind it is, or says it twice")
	case e.typ.Kind == "":
		return nil
	}
	if isObject {
		said = w.objects
	}
	if _, before := said[e.from.id]; !before { // its first word counts: who changes it does so alone
		said[e.from.id] = e.typ
		w.kind, w.marked = most(w.objects), most(w.objects, w.lists)
	}
	if isObject && w.kind != e.typ {
		return fmt.Errorf("an object of it is of kind %.100q of %.100q, and those of most clusters are of %.100q of %.100q", e.typ.Kind, e.typ.APIVersion, w.kind.Kind, w.kind.APIVersion)
	}
	return nil
}

// whole reports whether the version covers all that the client has seen: not while a member is listed that came later.
func (w *watcher) whole() bool {
	for id := range w.shown {
		if w.version[id] == "" {
			return false
		}
	}
	return true
}

// object appends an event of an object, as one line.
func (w *watcher) object(out []byte, e event) ([]byte, error) {
	begin := len(out)
	out, err := w.objectAsSent(out, e)
	for _, end := range []byte("\r\n") { // white space may hold some, and what follows one be taken for an event, also of another member
		for at := begin; ; at++ {
			i := bytes.IndexByte(out[at:], end)
			if i < 0 {
				break
			}
			at += i
			out[at] = ' '
		}
	}
	return append(out, '\n'), err
}

// objectAsSent appends an event of an object as its member formed it.
func (w *watcher) objectAsSent(out []byte, e event) ([]byte, error) {
	f := e.from
	resumable := w.resumable(f)
	f.answer.SetVersion(w.objectVersion(resumable))
	out = append(append(append(out, `{"type":"`...), e.kind...), `","object":`...)
	var err error
	if !e.table {
		out, err = f.answer.Append(out, e.object)
		return append(out, '}'), err
	}
	layout := w.layout
	if f.layout == nil || !slices.EqualFunc(f.columns, e.columns, func(a, b merge.Column) bool { return a.Name == b.Name }) {
		if f.columns = e.columns; layout == nil {
			w.layout = merge.NewLayout(e.columns)
		} else {
			w.layout = layout.With(e.columns)
		}
	}
	definitions := "[]" // as they were
	if w.layout != layout {
		definitions = string(w.layout.Definitions())
	}
	if f.layout != w.layout {
		f.layout, f.rows = w.layout, w.layout.For(f.Name, e.columns, f.answer)
	}
	out = fmt.Appendf(out, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q},"columnDefinitions":%s,"rows":[`, resumable, definitions)
	out, err = f.rows.Append(out, e.object)
	return append(out, "]}}"...), err
}

// resumable returns the version from which a client can resume behind an event of a member. It is "" while a list is
// being delivered. Events of a difference have the version from before it.
func (w *watcher) resumable(f *follower) string {
	if w.version[f.id] == "" || !w.whole() {
		return ""
	}
	return w.delivered()
}

// objectVersion returns the function that replaces an object's own resourceVersion in an event. Objects of a single
// member keep their own. Those of a list that is being delivered get a composite from which a resume is refused.
func (w *watcher) objectVersion(resumable string) func(own string) string {
	switch {
	case resumable != "":
		return func(string) string { return resumable }
	case w.single:
		return withoutComposite
	}
	return func(own string) string {
		if !cursor.ValidOwn(own) {
			return withoutComposite(own)
		}
		return w.version.WithObject(own).String()
	}
}

// withoutComposite returns a member's own version, or "" if it reads as a composite. By a composite, a member could make
// a client resume the watches of other members where it likes.
func withoutComposite(own string) string {
	if cursor.Composite(own) {
		return ""
	}
	return own
}

// delivered returns the resourceVersion of all that was delivered.
func (w *watcher) delivered() string {
	return written(w.version, w.single)
}

// bookmark appends a bookmark of all that was delivered.
func (w *watcher) bookmark(out []byte, annotations map[string]string) []byte {
	object := map[string]any{"metadata": map[string]any{"resourceVersion": w.delivered(), "creationTimestamp": nil}}
	if annotations != nil {
		object["metadata"].(map[string]any)["annotations"] = annotations
	}
	if w.marked.Kind != "" {
		object["kind"], object["apiVersion"] = w.marked.Kind, w.marked.APIVersion
	}
	text, err := json.Marshal(map[string]any{"type": "BOOKMARK", "object": object})
	if err != nil {
		panic(err) // strings always marshal
	}
	return append(append(out, text...), '\n')
}

// kinds is what members say that objects are, by the members' id.
type kinds map[uint64]metav1.TypeMeta

// most returns what most members say, each where it is found first; where as many say another, what those say that are registered longest.
func most(said ...kinds) metav1.TypeMeta {
	words, votes := kinds{}, map[metav1.TypeMeta]int{}
	for _, some := range said {
		for id, kind := range some {
			if _, ok := words[id]; !ok {
				words[id] = kind
				votes[kind]++
			}
		}
	}
	var kind metav1.TypeMeta
	for _, id := range slices.Sorted(maps.Keys(words)) {
		if votes[words[id]] > votes[kind] {
			kind = words[id]
		}
	}
	return kind
}
