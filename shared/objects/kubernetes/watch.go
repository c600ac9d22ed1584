package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/objects"
)

const (
	progressEvery = 2 * time.Second
	// maxEvent exceeds a watch event with the largest Record.
	maxEvent = 2 << 20
	// streamTime is the minimum of the timeout with which a watch of the API server begins.
	streamTime = 4 * time.Minute
)

// Changes implements objects.Store.
func (s *Store) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, hub.CallTimeout)
	defer cancel()
	now, err := s.readAnnouncement(ctx)
	if err == nil {
		err = checkFrom(from, now)
	}
	if err != nil {
		return nil, 0, s.fail("read", "changes", err)
	}
	if now.announced <= from {
		return nil, from, nil
	}
	if limit == 0 {
		return nil, 0, s.fail("read", "changes", tooMany(from, limit))
	}
	var changes []objects.Event
	last := from
	for n := 1; last < now.announced; n++ {
		in, err := s.open(ctx, last)
		if err != nil {
			return nil, 0, s.fail("read", "changes", err)
		}
		for err == nil && last < now.announced {
			var e event
			if e, err = in.next(); err != nil {
				break
			}
			if last = e.revision; e.isWrite {
				changes = append(changes, e.write)
			}
			if len(changes) > limit {
				err = tooMany(from, limit)
			}
		}
		_ = in.Close()
		if errors.Is(err, io.EOF) {
			err = hub.Sleep(ctx, hub.Pause(n))
		}
		if err != nil {
			return nil, 0, s.fail("read", "changes", err)
		}
	}
	return changes, last, nil
}

func tooMany(from uint64, limit int) error {
	return fmt.Errorf("%w: more than %d writes after revision %d", objects.ErrCompacted, limit, from)
}

// checkFrom returns ErrCompacted for a revision after the current one, as from another hub or from before a restore. It
// also does for 0, which the API server would read as any revision.
func checkFrom(from uint64, now state) error {
	if from == 0 || from > now.current {
		return fmt.Errorf("%w: revision %d of %d", objects.ErrCompacted, from, now.current)
	}
	return nil
}

// Watch implements objects.Store. It delivers events as the API server sends them.
func (s *Store) Watch(ctx context.Context, prefix string, from uint64, each func(objects.Event) error,
	progress func(uint64)) error {
	now, err := s.readAnnouncement(ctx)
	if err == nil {
		err = checkFrom(from, now)
	}
	if err != nil {
		return s.fail("watch", prefix, err)
	}
	w := &watcher{store: s, prefix: prefix, each: each, progress: progress, at: from}
	for n := 1; ; n++ {
		before := w.at
		err := w.follow(ctx)
		var stopped stop
		switch {
		case errors.As(err, &stopped):
			return stopped.error
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, io.EOF) && !errors.Is(err, errStuck):
			return s.fail("watch", prefix, err)
		}
		if w.at > before {
			n = 1
		}
		if err := hub.Sleep(ctx, hub.Pause(n)); err != nil {
			return err
		}
	}
}

type watcher struct {
	store    *Store
	prefix   string
	each     func(objects.Event) error
	progress func(uint64)
	at       uint64 // all events up to this revision were delivered
}

// stop marks an error of the caller's function, which Watch returns unchanged.
type stop struct{ error }

var errStuck = errors.New("the watch of the API server did not send an announcement that a read has shown")

// follow delivers the events of one watch of the API server until that ends.
func (w *watcher) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := w.store.open(ctx, w.at)
	if err != nil {
		return err
	}
	events, ended := make(chan event), make(chan error, 1)
	go func() { // ends when the stream is closed, or ctx ends
		for {
			e, err := in.next()
			if err != nil {
				ended <- err
				close(events)
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				ended <- ctx.Err()
				close(events)
				return
			}
		}
	}()
	defer func() {
		cancel()
		_ = in.Close()
		for range events {
		}
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var awaited uint64 // the announcement that the watch had not sent at the last tick, or 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-events:
			if !ok {
				return <-ended
			}
			if err := w.deliver(ctx, e); err != nil {
				return err
			}
		case <-tick.C:
			now, err := w.store.recentAnnouncement(ctx, progressEvery/2)
			switch {
			case err != nil:
				return err
			case now.announced <= w.at:
				w.report()
				awaited = 0
			case awaited != 0 && w.at < awaited:
				return errStuck
			default:
				awaited = now.announced
			}
		}
	}
}

func (w *watcher) deliver(ctx context.Context, e event) error {
	w.at = e.revision
	if !e.isWrite {
		w.report()
		return nil
	}
	if !strings.HasPrefix(e.write.Object.Key, w.prefix) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.each(e.write); err != nil {
		return stop{err}
	}
	w.report()
	return nil
}

func (w *watcher) report() {
	if w.progress != nil {
		w.progress(w.at)
	}
}

// event is one event of the API server's watch: a write, an announcement, or a bookmark.
type event struct {
	revision uint64
	isWrite  bool
	write    objects.Event
}

// eventReader reads a watch of the API server. It is not safe for concurrent use, except Close.
type eventReader struct {
	io.Closer
	limit   *io.LimitedReader
	decoder *json.Decoder
}

func (s *Store) open(ctx context.Context, from uint64) (*eventReader, error) {
	lasts := streamTime + rand.N(streamTime/4) //nolint:gosec // no secret depends on it
	body, err := s.client.Stream(ctx, s.path(), url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatUint(from, 10)},
		"timeoutSeconds": {strconv.Itoa(int(lasts / time.Second))},
	})
	if err != nil {
		return nil, err
	}
	limit := &io.LimitedReader{R: body, N: maxEvent}
	return &eventReader{body, limit, json.NewDecoder(limit)}, nil
}

// next returns io.EOF at the end of the stream.
func (in *eventReader) next() (event, error) {
	var raw struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	in.limit.N = maxEvent
	if err := in.decoder.Decode(&raw); errors.Is(err, io.ErrUnexpectedEOF) && in.limit.N <= 0 {
		return event{}, fmt.Errorf("%w: a watch event has more than %d bytes", objects.ErrInvalid, maxEvent)
	} else if err != nil {
		return event{}, err
	}
	if raw.Type == "ERROR" {
		e := &hub.Error{}
		if err := json.Unmarshal(raw.Object, &e.Status); err != nil {
			return event{}, err
		}
		return event{}, e
	}
	var r record
	if err := json.Unmarshal(raw.Object, &r); err != nil {
		return event{}, err
	}
	return newEvent(raw.Type, &r)
}

func newEvent(typ string, r *record) (event, error) {
	o, err := r.object()
	if err != nil {
		return event{}, err
	}
	e := event{revision: o.Revision, write: objects.Event{Object: o}}
	switch typ {
	case "ADDED":
		e.write.Type = objects.Created
	case "MODIFIED":
		e.write.Type, e.write.Previous = objects.Updated, r.Previous
	case "DELETED":
		e.write.Type, e.write.Previous, e.write.Object.Created = objects.Deleted, r.Value, r.Created
	case "BOOKMARK":
		return event{revision: o.Revision}, nil
	default:
		return event{}, fmt.Errorf("the API server sends a watch event of the type %.32q", typ)
	}
	e.isWrite = r.Key != "" // the announcement has none
	return e, nil
}
