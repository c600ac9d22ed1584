package watch

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// initialEventsEnd is the annotation of the bookmark after which a watch is live (WatchList).
const initialEventsEnd = "k8s.io/initial-events-end"

// A buffer is sent at bufferSize bytes, after maxBatch events, or when no event is ready. Events that add no text
// count, too, because the watcher checks its timers only after a send.
const (
	bufferSize = 64 << 10
	maxBatch   = 64
)

type buffer struct {
	text   []byte
	events int // the number since the last send
	w      io.Writer
	flush  func() error
}

// canDelaySend reports whether the buffer has text, and is below both limits: bufferSize and maxBatch.
func (b *buffer) canDelaySend() bool {
	return len(b.text) > 0 && len(b.text) < bufferSize && b.events < maxBatch
}

func (b *buffer) send() error {
	if b.events = 0; len(b.text) == 0 {
		return nil
	}
	_, err := b.w.Write(b.text)
	if b.text = b.text[:0]; cap(b.text) > 2*bufferSize { // release the memory of a large object
		b.text = nil
	}
	return errors.Join(err, b.flush())
}

func (w *watcher) deliver(ctx context.Context, rw io.Writer, flush func() error) error {
	var end <-chan time.Time
	if w.timeout > 0 {
		timer := time.NewTimer(w.timeout)
		defer timer.Stop()
		end = timer.C
	}
	review := time.NewTicker(reviewInterval)
	defer review.Stop()
	var coverages <-chan coverage // nil unless a coverage is being read
	out := &buffer{w: rw, flush: flush}
	owesInitialEnd := w.sendsInitial && w.allowsBookmarks
	for last := false; !last; out.events++ {
		e := w.readyEvent(out)
		if e.from == nil {
			if out.send() != nil {
				return nil // the client is gone, or the stream was ended
			}
			select {
			case <-ctx.Done():
				return endCause(ctx)
			case <-end:
				return nil
			case <-review.C:
				if coverages == nil { // no other reading is in progress
					coverages = w.readCoverage(ctx)
				}
			case c := <-coverages:
				coverages = nil
				if err := w.review(ctx, c); err != nil {
					out.text, last = appendError(out.text, err), true
				}
			case e = <-w.events:
			}
		}
		if e.from != nil {
			out.text, last = w.handle(ctx, out.text, e)
		}
		if owesInitialEnd && !last && len(w.pending) == 0 && w.canResume() {
			owesInitialEnd = false
			out.text = w.appendBookmark(out.text, map[string]string{initialEventsEnd: "true"})
		}
	}
	_ = out.send()
	return nil
}

func (w *watcher) readyEvent(out *buffer) event {
	if out.canDelaySend() {
		select {
		case e := <-w.events:
			return e
		default:
		}
	}
	return event{}
}

// endCause returns the error with which the gateway cut the stream. It returns nil if the gateway ended the stream in
// an orderly manner (forward.ErrFinished), or if the client is gone. The watcher sends no error event in any of these
// cases.
func endCause(ctx context.Context) error {
	var e *status.Error
	if cause := context.Cause(ctx); !errors.Is(cause, forward.ErrFinished) && errors.As(cause, &e) {
		return e
	}
	return nil
}

func (w *watcher) handle(ctx context.Context, out []byte, e event) (text []byte, last bool) {
	m := w.followed[e.from.ID]
	if m == nil || m.follower != e.from { // the event's follower was stopped
		return out, false
	}
	if e.typ == failed {
		return appendError(out, e.err), true
	}
	text, err := w.deliverEvent(out, m, e)
	if err == nil {
		return text, false
	}
	var panicFailure *members.Failure
	if errors.As(err, &panicFailure) {
		return appendError(out, members.Summary([]*members.Failure{panicFailure})), true
	} else if !w.followAgain(ctx, m.follower, e, err) {
		return appendError(out, partialList(e.from.Name)), true
	}
	return out, false
}

// followAgain restarts the follower of a member at the version before an event that cannot be delivered. Events without
// a version come from lists, so the follower would have to list the member again. A new list does not show which of the
// client's objects were deleted. If the client has objects of the member, followAgain therefore returns false for an
// event without a version, and the watch ends.
func (w *watcher) followAgain(ctx context.Context, f *follower, e event, why error) bool {
	log := w.client.Log().With("cluster", f.Name, "error", why.Error())
	if e.version == "" && w.shown[f.ID] {
		log.Warn("an event of a cluster cannot be delivered; the watch ends")
		return false
	}
	log.Warn("an event of a cluster cannot be delivered; the cluster is read again")
	f.cancel()
	delete(w.pending, f.ID) // bookmarks no longer wait for this member
	w.follow(ctx, f.Target, min(2*max(f.delay, minRejoin), maxRejoin))
	return true
}

// deliverEvent appends an event to out, and records in w.progress that the event was delivered. If deliverEvent returns
// an error, the caller must ignore the returned text and use out instead. A panic becomes a *members.Failure. After a
// panic, w.progress may be wrong, so the watch must end. After any other error, w.progress is unchanged.
func (w *watcher) deliverEvent(out []byte, m *followed, e event) (text []byte, err error) {
	defer w.client.Recover(e.from.Name, func(panicFailure *members.Failure) { err = panicFailure })
	if err := w.votes.record(e); err != nil {
		return out, err
	}
	before, layout := w.version[m.ID], w.layout
	if e.version != "" {
		w.version[m.ID] = e.version
	}
	switch e.typ {
	case unavailable:
		delete(w.pending, m.ID) // bookmarks no longer wait for this member
		return out, nil
	case synced, bookmark:
		wasComplete := len(w.pending) == 0 // no bookmark precedes the end of the initial events
		if e.typ == synced {
			delete(w.pending, m.ID)
		}
		if !w.allowsBookmarks || !wasComplete || !w.canResume() {
			return out, nil
		}
		return w.appendBookmark(out, nil), nil
	}
	out, err = w.appendObject(out, m, e)
	if err == nil {
		w.shown[m.ID] = true
		return out, nil
	}
	w.layout, m.layout = layout, nil
	w.restore(m.ID, before)
	return out, err
}
