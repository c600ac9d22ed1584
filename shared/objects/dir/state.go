package dir

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/objects"
)

// state is the content of a log in memory. Events are immutable, so a slice of them may be read without the lock.
type state struct {
	first   uint64 // revision of the snapshot; events start after it
	rev     uint64
	objects map[string]objects.Object
	keys    []string // keys of objects, sorted
	changes []change // revisions first+1 to rev
	bytes   int      // size of the values in changes
}

type change struct {
	event  objects.Event
	before objects.Object // the object before an update or deletion
}

func newState() *state { return &state{objects: map[string]objects.Object{}} }

func (s *state) apply(r record) error {
	if r.Type == "" {
		return s.applySnapshot(r)
	}
	if r.Revision != s.rev+1 {
		return fmt.Errorf("revision %d follows %d", r.Revision, s.rev)
	}
	before, exists := s.objects[r.Key]
	if exists != (r.Type != objects.Created) {
		return fmt.Errorf("revision %d: %s of %s, which exists: %v", r.Revision, r.Type, r.Key, exists)
	}
	after := objects.Object{Key: r.Key, Value: r.Value, Revision: r.Revision, Created: before.Created}
	at, _ := slices.BinarySearch(s.keys, r.Key)
	switch r.Type {
	case objects.Created:
		after.Created = r.Revision
		s.keys = slices.Insert(s.keys, at, r.Key)
		s.objects[r.Key] = after
	case objects.Updated:
		s.objects[r.Key] = after
	case objects.Deleted:
		after.Value = before.Value
		s.keys = slices.Delete(s.keys, at, at+1)
		delete(s.objects, r.Key)
	default:
		return fmt.Errorf("revision %d: unknown type %q", r.Revision, r.Type)
	}
	s.rev = r.Revision
	s.bytes += len(after.Value)
	s.changes = append(s.changes, change{objects.Event{Type: r.Type, Object: after, Previous: before.Value}, before})
	return nil
}

func (s *state) applySnapshot(r record) error {
	switch {
	case r.Format > format:
		return fmt.Errorf("format %d is newer than this program: update it", r.Format)
	case r.Format == format && s.rev == 0 && len(s.keys) == 0:
		s.first, s.rev = r.Snapshot, r.Snapshot
	case r.Format != 0 || len(s.changes) > 0 || r.Revision > s.first || len(s.keys) > 0 && r.Key <= s.keys[len(s.keys)-1]:
		return fmt.Errorf("misplaced record of %q", r.Key)
	default:
		s.objects[r.Key] = objects.Object{Key: r.Key, Value: r.Value, Revision: r.Revision, Created: r.Created}
		s.keys = append(s.keys, r.Key)
	}
	return nil
}

func (s *state) since(from uint64) ([]change, error) {
	if from < s.first || from > s.rev {
		return nil, fmt.Errorf("%w: revision %d: this store has %d to %d", objects.ErrCompacted, from, s.first, s.rev)
	}
	return s.changes[from-s.first:], nil
}

func (s *state) list(prefix, after string, limit int) (found []objects.Object, remaining int) {
	from, _ := slices.BinarySearch(s.keys, prefix)
	if after != "" {
		at, ok := slices.BinarySearch(s.keys, after)
		if ok {
			at++
		}
		from = max(from, at)
	}
	for _, k := range s.keys[from:] {
		if !strings.HasPrefix(k, prefix) {
			break
		}
		if limit > 0 && len(found) == limit {
			remaining++
			continue
		}
		found = append(found, s.objects[k])
	}
	return found, remaining
}

func (s *state) compacted(to uint64) ([]byte, error) {
	remaining := s.changes[to-s.first:]
	old := maps.Clone(s.objects)
	for _, c := range slices.Backward(remaining) {
		if c.event.Type == objects.Created {
			delete(old, c.event.Object.Key)
		} else {
			old[c.event.Object.Key] = c.before
		}
	}
	records := []record{{Format: format, Snapshot: to}}
	for _, k := range slices.Sorted(maps.Keys(old)) {
		o := old[k]
		records = append(records, record{Key: k, Value: o.Value, Revision: o.Revision, Created: o.Created})
	}
	for _, c := range remaining {
		records = append(records, eventRecord(c.event))
	}
	var (
		b   []byte
		err error
	)
	for _, r := range records {
		if b, err = appendRecord(b, r); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func eventRecord(e objects.Event) record {
	r := record{Type: e.Type, Key: e.Object.Key, Revision: e.Object.Revision}
	if e.Type != objects.Deleted {
		r.Value = e.Object.Value
	}
	return r
}
