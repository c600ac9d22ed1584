// Package dir stores objects in a directory, for one machine and any number of processes.
//
// The file objects.log contains a snapshot and all later writes, one record with a checksum per line. Every Store has
// the content of the file in memory, and reads new records when the file has changed.
//
//   - Writers, and readers of new records, lock .lock. A write returns after its record is synced.
//   - A writer that dies may leave an incomplete last record. The next call of any Store truncates the file after the
//     last intact record. A damaged record with an intact one after it is an error.
//   - Compaction replaces objects.log with a file that has a newer snapshot and fewer later writes.
//   - Open returns ErrForbidden if group or others may write to the directory or to objects.log. They could change
//     roles and bindings.
package dir

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/objects"
)

const (
	lockName = ".lock"
	logName  = "objects.log"
	tmpName  = ".objects.tmp"
	openWait = 30 * time.Second
	// poll is the interval at which a watch looks for writes of other processes.
	poll          = 50 * time.Millisecond
	progressEvery = 2 * time.Second
)

// historyLimits bounds the number and size of the writes after the snapshot. The write with which they exceed
// maxChanges or maxBytes starts a compaction. It keeps the last keepChanges writes, or fewer if their values exceed
// keepBytes. Both byte limits count values, but not keys.
type historyLimits struct {
	maxChanges, maxBytes   int
	keepChanges, keepBytes int
}

var defaultHistory = historyLimits{maxChanges: 8192, maxBytes: 32 << 20, keepChanges: 4096, keepBytes: 8 << 20}

// Store implements objects.Store. A Store starts no goroutine. Close releases its file descriptors.
type Store struct {
	root    *os.Root
	history historyLimits

	// gate admits one goroutine to read new records or to write. Only that goroutine changes the fields below, with mu
	// locked.
	gate chan struct{}

	mu      sync.RWMutex
	file    *os.File
	info    os.FileInfo   // result of Stat when the file was opened
	size    int64         // bytes of the file that were read or written
	state   *state        // content of these bytes; a new state for each new file
	changed chan struct{} // closed and replaced after new records were read or written
}

var _ objects.Store = (*Store)(nil)

// Open opens the store in the directory path, and creates a missing directory with mode 0700.
func Open(path string) (*Store, error) { return open(path, defaultHistory) }

// Close waits for a running write and releases the files. Later calls fail.
func (s *Store) Close() error {
	s.gate <- struct{}{}
	defer func() { <-s.gate }()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.file.Close() // every record is synced
	return s.root.Close()
}

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key string) (objects.Object, error) {
	if err := objects.ValidKey(key); err != nil {
		return objects.Object{}, err
	}
	if err := s.refresh(ctx); err != nil {
		return objects.Object{}, fail("get", key, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.state.objects[key]
	if !ok {
		return objects.Object{}, fail("get", key, objects.ErrNotFound)
	}
	return o, nil
}

// List implements objects.Store.
func (s *Store) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	if _, _, err := objects.SplitPrefix(prefix); err != nil {
		return objects.Page{}, err
	}
	var from objects.Continue
	if cont != "" {
		var err error
		if from, err = objects.ParseContinue(cont, prefix); err != nil {
			return objects.Page{}, err
		}
	}
	if err := s.refresh(ctx); err != nil {
		return objects.Page{}, fail("list", prefix, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if cont == "" {
		from.Revision = s.state.rev
	}
	found, remaining := s.state.list(prefix, from.After, limit)
	page := objects.Page{Objects: found, Revision: from.Revision, Remaining: int64(remaining)}
	if remaining > 0 {
		page.Continue = objects.Continue{Revision: from.Revision, After: found[len(found)-1].Key}.String()
	}
	return page, nil
}

// Revision implements objects.Store.
func (s *Store) Revision(ctx context.Context) (uint64, error) {
	if err := s.refresh(ctx); err != nil {
		return 0, fail("read", "the revision", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.rev, nil
}

// Create implements objects.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte) (objects.Object, error) {
	return s.write(ctx, "create", key, value, func(_ objects.Object, exists bool) (objects.EventType, error) {
		if exists {
			return "", objects.ErrExists
		}
		return objects.Created, nil
	})
}

// Update implements objects.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	return s.write(ctx, "update", key, value, func(o objects.Object, exists bool) (objects.EventType, error) {
		return objects.Updated, checkRevision(o, exists, rev)
	})
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key string, rev uint64) (objects.Object, error) {
	return s.write(ctx, "delete", key, nil, func(o objects.Object, exists bool) (objects.EventType, error) {
		return objects.Deleted, checkRevision(o, exists, rev)
	})
}

func checkRevision(o objects.Object, exists bool, rev uint64) error {
	switch {
	case !exists:
		return objects.ErrNotFound
	case o.Revision != rev:
		return fmt.Errorf("%w: want revision %d, is %d", objects.ErrConflict, rev, o.Revision)
	}
	return nil
}

func (s *Store) write(ctx context.Context, op, key string, value []byte,
	decide func(o objects.Object, exists bool) (objects.EventType, error),
) (objects.Object, error) {
	if err := objects.ValidKey(key); err != nil {
		return objects.Object{}, err
	}
	if err := objects.ValidValue(value); err != nil {
		return objects.Object{}, err
	}
	var written objects.Object
	err := s.withLocks(ctx, func() error {
		o, exists := s.state.objects[key]
		typ, err := decide(o, exists)
		if err != nil {
			return err
		}
		r := record{Type: typ, Key: key, Value: bytes.Clone(value), Revision: s.state.rev + 1}
		if err := s.append(r); err != nil {
			return err
		}
		written = s.state.changes[len(s.state.changes)-1].event.Object
		s.compactIfLong()
		return nil
	})
	if err != nil {
		return objects.Object{}, fail(op, key, err)
	}
	return written, nil
}

// Changes implements objects.Store.
func (s *Store) Changes(ctx context.Context, fromRev uint64, limit int) ([]objects.Event, uint64, error) {
	return objects.ChangesOf(ctx, s, fromRev, limit)
}

// Watch implements objects.Store. It delivers writes of this Store at once, and others within about 50 ms.
func (s *Store) Watch(ctx context.Context, prefix string, fromRev uint64,
	onEvent func(objects.Event) error, onProgress func(rev uint64)) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var reported time.Time
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Get the channel before reading the state, so that any change after the read ends the wait below.
		changed := s.nextChange()
		if err := s.refresh(ctx); err != nil {
			return fail("watch", prefix, err)
		}
		s.mu.RLock()
		changes, err := s.state.since(fromRev)
		s.mu.RUnlock()
		if err != nil {
			return fail("watch", prefix, err)
		}
		for _, c := range changes {
			if err := ctx.Err(); err != nil {
				return err
			}
			if strings.HasPrefix(c.event.Object.Key, prefix) {
				if err := onEvent(c.event); err != nil {
					return err
				}
			}
		}
		fromRev += uint64(len(changes))
		if onProgress != nil && (len(changes) > 0 || time.Since(reported) >= progressEvery) {
			onProgress(fromRev)
			reported = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-tick.C:
		}
	}
}

func (s *Store) nextChange() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}
