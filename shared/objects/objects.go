// Package objects keeps the gateway's own API objects (clusters, registries, roles, bindings, passes)
// under keys, with one monotonic revision for the whole store and a log of changes.
//
// The revision is what the gateway hands out as resourceVersion: every successful write makes exactly
// one new revision, greater than all before. Implementations live in sub-packages (dir, dynamo) and are
// safe for concurrent use, also by several processes; reads see every write that returned before them.
package objects

import "context"

// MaxValue is the largest value in bytes that a Store takes. (A DynamoDB item holds 400 KB, and a log entry
// holds the value before the write as well.)
const MaxValue = 192 << 10

// Object is one value under a key.
type Object struct {
	// Key is resource, slash, name: "clusters/member1"; see ValidKey.
	Key string
	// Value is opaque to the store, at most MaxValue bytes. Who gets one from a Store must not change it.
	Value []byte
	// Revision is that of the object's last write; Created that of its creation.
	Revision, Created uint64
}

// Page is one page of a list.
type Page struct {
	Objects []Object
	// Revision of the store at which the first page was read: a Watch from it misses nothing that the
	// list does not show.
	Revision uint64
	// Continue gives the next page, or is empty. Pages may show writes later than Revision.
	Continue string
	// Remaining counts the objects after this page, or is -1 if not known.
	Remaining int64
}

// EventType says what happened to an object.
type EventType string

// The types of an Event.
const (
	Created EventType = "CREATED"
	Updated EventType = "UPDATED"
	Deleted EventType = "DELETED"
)

// Event is one write. Object holds the new state and, for Deleted, the last state with the revision of
// the deletion.
type Event struct {
	Type   EventType
	Object Object
	// Previous is the value before an update or deletion; nil for Created.
	Previous []byte
}

// Store keeps objects. Every method honours ctx and returns one of the package's errors, wrapped.
type Store interface {
	Get(ctx context.Context, key string) (Object, error)
	// List returns the objects whose key begins with prefix, ordered by key; limit 0 means all. The
	// prefix holds a resource and its slash at least: see SplitPrefix.
	List(ctx context.Context, prefix string, limit int, cont string) (Page, error)
	// Revision returns the store's current revision; 0 before the first write.
	Revision(ctx context.Context) (uint64, error)
	// Create stores a new object, or returns ErrExists.
	Create(ctx context.Context, key string, value []byte) (Object, error)
	// Update replaces the object whose revision is rev, or returns ErrConflict or ErrNotFound.
	Update(ctx context.Context, key string, value []byte, rev uint64) (Object, error)
	// Delete removes the object whose revision is rev and returns its last state with the revision of
	// the deletion, or ErrConflict or ErrNotFound.
	Delete(ctx context.Context, key string, rev uint64) (Object, error)
	// Watch calls each, in order of revision, for every write under prefix after revision from, until
	// ctx ends (then it returns ctx's error) or each returns an error (then it returns that). An empty
	// prefix means everything.
	// ErrCompacted when history since from is gone, or was never this store's: list anew.
	// ErrUnavailable and ErrForbidden when the store fails: watch again from the last revision that came.
	// progress, if not nil, is called with a revision up to which all events were given, at least every
	// few seconds.
	Watch(ctx context.Context, prefix string, from uint64, each func(Event) error, progress func(rev uint64)) error
}
