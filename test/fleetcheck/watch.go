package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

// epoch counts the disturbances of clusters. A version from an earlier epoch may have expired.
type epoch struct {
	n atomic.Int64
	// isChanging is true until every part of the gateway uses a change of the clusters. Until then the parts that list and
	// watch may know different clusters.
	isChanging atomic.Bool
}

func (e *epoch) next()      { e.n.Add(1) }
func (e *epoch) now() int64 { return e.n.Load() }

// historyKept is the minimum time for which an API server keeps its history.
const historyKept = 60 * time.Second

// mark is a version of a watch, with all objects that it covers. Events of a difference, which the fleet found by
// listing a cluster again, have the version from before it. A client that resumes there gets all events of the
// difference again, so their objects are not covered.
type mark struct {
	version string
	covered state
	own     map[string]string // each cluster's own version; nil if version is the own one of a single cluster
	at      time.Time
}

// watcher lists and watches through the fleet like an informer. It is cut at random, and resumes from a random one of
// its last versions. mu guards the fields below it.
type watcher struct {
	r         *runner
	selection selection
	form      form
	done      chan struct{}

	mu          sync.Mutex
	fault       error
	state       state
	covered     state             // the objects that the last version covers
	own         map[string]string // each cluster's own version of covered
	marks       []mark
	session     int64 // epoch of its last list
	mayExpire   bool  // the last list left a cluster out
	cut         context.CancelFunc
	relists     int
	resumptions int
	events      int
	last        string // error of its last request
}

type watchEvent struct {
	Type   string
	Object map[string]any
}

// errRelist ends a session as documented: the client lists again.
var errRelist = errors.New("the version has expired")

// run lists and watches until ctx ends or a fault is found.
func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	for ctx.Err() == nil && w.failure() == nil {
		err := w.list(ctx)
		for err == nil && w.failure() == nil {
			err = w.follow(ctx)
		}
		w.mu.Lock()
		w.last = fmt.Sprint(err)
		w.relists++
		w.mu.Unlock()
		select {
		case <-time.After(300 * time.Millisecond): // as clients do
		case <-ctx.Done():
		}
	}
}

func (w *watcher) list(ctx context.Context) error {
	session := w.r.epoch.now()
	l, err := w.r.listFleet(ctx, w.form.prefix+w.selection.path(nil, true), w.form)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session, w.mayExpire = session, len(l.warnings) > 0
	w.state = state{}
	for key, o := range l.state {
		w.state[key] = withoutVersion(o)
	}
	w.covered, w.own, w.marks = state{}, map[string]string{}, nil
	w.remember(l.version)
	return nil
}

// remember stores the current version and the objects that it covers. mu must be locked.
func (w *watcher) remember(version string) {
	const maxMarks = 20
	own := w.r.ownVersions(version)
	if own == nil { // a single cluster's: no event of it has the version from before
		w.covered, w.own = maps.Clone(w.state), map[string]string{}
	}
	for cluster, v := range own {
		if w.own[cluster] == v {
			continue
		}
		w.own[cluster] = v
		maps.DeleteFunc(w.covered, func(k objectKey, _ map[string]any) bool { return k.cluster == cluster })
		maps.Copy(w.covered, part(w.state, cluster))
	}
	w.marks = append(w.marks, mark{version, maps.Clone(w.covered), maps.Clone(w.own), time.Now()})
	if len(w.marks) > maxMarks {
		w.marks = w.marks[1:]
	}
}

// follow watches from the last mark until the connection ends. It returns an error if the client must list again.
func (w *watcher) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	if len(w.marks) == 0 {
		w.mu.Unlock()
		return errRelist
	}
	from := w.marks[len(w.marks)-1]
	w.state, w.covered, w.own, w.cut = maps.Clone(from.covered), maps.Clone(from.covered), maps.Clone(from.own), cancel
	w.mu.Unlock()
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {from.version}}
	path := w.form.prefix + w.selection.path(query, true)
	began := time.Now()
	resp, err := w.r.gateway.open(ctx, request{method: "GET", path: path})
	if err != nil {
		return w.pause(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return w.ended(ctx, from, &answer{resp.StatusCode, resp.Header, body})
	}
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return w.pause(ctx, err)
		}
		var e watchEvent
		if err := generate.Decode(line, &e); err != nil {
			return w.fail(fmt.Errorf("read an event: %w: %s", err, head(line)))
		}
		if e.Type == "ERROR" {
			text, _ := json.Marshal(e.Object) // it was JSON
			code, _ := e.Object["code"].(json.Number)
			n, _ := code.Int64()
			return w.ended(ctx, from, &answer{code: int(n), body: text})
		}
		if err := w.add(e); err != nil {
			return w.fail(fmt.Errorf("%w\nthe connection began %v, from version %s; the event has %s\nevent: %s",
				err, began.UTC().Format(time.TimeOnly), from.version, version(e.Object), head(line)))
		}
	}
}

func (w *watcher) pause(ctx context.Context, err error) error {
	w.mu.Lock()
	w.last = err.Error()
	w.resumptions++
	w.mu.Unlock()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
	if w.r.watching.Err() != nil {
		return w.r.watching.Err()
	}
	return nil
}

// ended handles an error that ended a watch. Expiry is expected only if a cluster was disturbed since the list.
func (w *watcher) ended(ctx context.Context, from mark, a *answer) error {
	if _, err := a.status(); err != nil && ctx.Err() == nil {
		return w.fail(err)
	}
	if a.code != http.StatusGone {
		return w.pause(ctx, fmt.Errorf("code %d: %s", a.code, head(a.body)))
	}
	w.mu.Lock()
	isDisturbed := w.session != w.r.epoch.now() || w.r.epoch.isChanging.Load()
	isExpected := w.mayExpire || isDisturbed || time.Since(from.at) > historyKept
	w.mu.Unlock()
	if !isExpected {
		const text = "the watch from %s expired, although no cluster was disturbed: %s"
		return w.fail(fmt.Errorf(text, from.version, head(a.body)))
	}
	return errRelist
}

// add applies an event. It fails if no single history of the objects contains the event here.
func (w *watcher) add(e watchEvent) error {
	version := version(e.Object)
	if version == "" {
		return errors.New("the event has no resourceVersion")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	own := w.r.ownVersions(version)
	for cluster, v := range own {
		if before, ok := w.own[cluster]; ok && cursor.Before(v, before) {
			return fmt.Errorf("the version of %s goes back from %s to %s", cluster, before, v)
		}
	}
	if e.Type != "BOOKMARK" {
		key := shownKeyOf(e.Object, w.form)
		before, known := w.state[key]
		now := withoutVersion(e.Object)
		isNew := own == nil || own[key.cluster] != w.own[key.cluster] // API servers also store changes of the version alone
		switch {
		case e.Type == "ADDED" && known:
			return fmt.Errorf("%v is added twice", key)
		case e.Type == "MODIFIED" && !known, e.Type == "DELETED" && !known:
			return fmt.Errorf("%v is %s, and was not added", key, e.Type)
		case e.Type == "MODIFIED" && !isNew && diff(before, now) == "":
			return fmt.Errorf("%v is modified, and does not differ", key)
		case e.Type == "DELETED":
			delete(w.state, key)
		default:
			w.state[key] = now
		}
	}
	w.remember(version)
	return nil
}

func version(o map[string]any) string {
	m, _ := o["metadata"].(map[string]any)
	version, _ := m["resourceVersion"].(string)
	return version
}

func (w *watcher) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fmt.Errorf("watch %s%s: %w", w.form.prefix, w.selection, err)
	return w.fault
}

func (w *watcher) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

func (w *watcher) counts() (relists, resumptions, events int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.relists, w.resumptions, w.events
}

// resumeFrom cuts the connection. The next one resumes from the version of ago events ago; if ago < 0, it begins with a
// new list.
func (w *watcher) resumeFrom(ago int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.marks); ago < 0 {
		w.marks = nil
	} else if n > 0 {
		w.marks = w.marks[:max(1, n-ago)]
	}
	if w.cut != nil {
		w.cut()
	}
}
