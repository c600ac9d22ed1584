package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/clusterpass/clusterpass/shared/objects"
)

// Watch implements storage.Interface. Its goroutine ends with ctx, with Stop, or with an error as the last event.
func (b *Backend) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	from, err := b.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{b: b, key: key, opts: opts, from: from, cancel: cancel, events: make(chan watch.Event, 16)}
	go w.run(ctx)
	return w, nil
}

type watcher struct {
	b      *Backend
	key    string
	opts   storage.ListOptions
	from   uint64
	cancel context.CancelFunc
	events chan watch.Event
}

func (w *watcher) Stop() { w.cancel() }

func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func (w *watcher) run(ctx context.Context) {
	defer close(w.events)
	defer w.cancel()
	err := w.watch(ctx)
	if ctx.Err() != nil || err == nil {
		return // the client closed the watch
	}
	status := apierrors.NewInternalError(err).Status()
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		status = s.Status()
	}
	_ = w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
}

func (w *watcher) watch(ctx context.Context) error {
	initial := w.from == 0
	if s := w.opts.SendInitialEvents; s != nil {
		initial = *s
	}
	rev := w.from
	if initial || rev == 0 {
		var err error
		if rev, err = w.state(ctx, initial); err != nil {
			return err
		}
	}
	prefix := w.key
	if w.opts.Recursive {
		prefix = strings.TrimSuffix(prefix, "/") + "/"
	}
	each := func(e objects.Event) error {
		if !w.opts.Recursive && e.Object.Key != w.key {
			return nil
		}
		out, err := w.event(e)
		if err != nil || out == nil {
			return err
		}
		return w.send(ctx, *out)
	}
	var progress func(uint64)
	if w.opts.Predicate.AllowWatchBookmarks {
		progress = func(rev uint64) { _ = w.bookmark(ctx, rev, false) }
	}
	err := w.b.store.Watch(ctx, prefix, rev, each, progress)
	return w.b.apiError("", err)
}

// state returns the present revision. If send is true, it also sends the present state.
func (w *watcher) state(ctx context.Context, send bool) (uint64, error) {
	opts := w.opts
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.Predicate.Limit, opts.Predicate.Continue = "", "", 0, ""
	if !send {
		rev, err := w.b.store.Revision(ctx)
		return rev, w.b.apiError("", err)
	}
	var all []runtime.Object
	page, err := w.b.list(ctx, w.key, opts, func(obj runtime.Object) { all = append(all, obj) })
	if err != nil {
		return 0, err
	}
	if err := w.b.checkMinVersion(w.opts.ResourceVersion, page.Revision, nil); err != nil {
		return 0, err
	}
	for _, obj := range all {
		if err := w.send(ctx, watch.Event{Type: watch.Added, Object: obj}); err != nil {
			return 0, err
		}
	}
	if w.opts.SendInitialEvents != nil && w.opts.Predicate.AllowWatchBookmarks {
		return page.Revision, w.bookmark(ctx, page.Revision, true)
	}
	return page.Revision, nil
}

// event returns nil for an object that matched the selectors neither before nor after. An object that starts or ceases
// to match is added or deleted.
func (w *watcher) event(e objects.Event) (*watch.Event, error) {
	var now, before runtime.Object
	read := func(value []byte) (runtime.Object, error) {
		obj := w.b.newObject()
		o := e.Object
		o.Value = value
		if err := w.b.decode(o, obj); err != nil {
			return nil, err
		}
		match, err := w.opts.Predicate.Matches(obj)
		if err != nil || !match {
			return nil, err
		}
		return obj, nil
	}
	var err error
	if e.Type != objects.Deleted {
		if now, err = read(e.Object.Value); err != nil {
			return nil, err
		}
	}
	if e.Type != objects.Created {
		value := e.Previous
		if e.Type == objects.Deleted {
			value = e.Object.Value
		}
		if before, err = read(value); err != nil {
			return nil, err
		}
	}
	switch {
	case now != nil && before != nil:
		return &watch.Event{Type: watch.Modified, Object: now}, nil
	case now != nil:
		return &watch.Event{Type: watch.Added, Object: now}, nil
	case before != nil:
		return &watch.Event{Type: watch.Deleted, Object: before}, nil
	}
	return nil, nil
}

// bookmark promises that all events up to rev were sent. end marks the end of the initial events.
func (w *watcher) bookmark(ctx context.Context, rev uint64, end bool) error {
	obj := w.b.newObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	m.SetResourceVersion(fmt.Sprint(rev))
	if end {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: obj})
}

func (w *watcher) send(ctx context.Context, e watch.Event) error {
	select {
	case w.events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
