// Package objects stores the gateway's own API objects: clusters, registries, roles, bindings and passes. The
// sub-packages dir and dynamo implement [Store].
//
//   - The store has one revision, the resourceVersion of the gateway. Each successful write increases it.
//   - Each write adds an event to a log, which Watch reads. Old events are eventually removed.
//   - A read sees every write that returned before the read began.
//   - A Store is safe for concurrent use, also by several processes.
package objects

import "context"

// MaxValue is the maximum size of a value in bytes. A log entry also has the old value, and DynamoDB limits it to 400
// KB.
const MaxValue = 192 << 10

// Object is a value with its key and revisions.
type Object struct {
	// Key has the form resource/name, e.g. "clusters/member1". See ValidKey.
	Key string
	// Value has at most MaxValue bytes. Callers must not change a Value that a Store returned.
	Value []byte
	// Revision is the revision of the last write, and Created that of the creation.
	Revision, Created uint64
}

// Page is one page of a list.
type Page struct {
	Objects []Object
	// Revision is the store's at the first page. A Watch from it returns every write that the list does not include.
	Revision uint64
	// Continue is the token for the next page, or empty. Later pages may include writes after Revision.
	Continue string
	// Remaining is the number of objects after this page, or -1 if unknown.
	Remaining int64
}

// EventType is the kind of a write.
type EventType string

// The types of an Event.
const (
	Created EventType = "CREATED"
	Updated EventType = "UPDATED"
	Deleted EventType = "DELETED"
)

// Event is one write, and Object the state after it. For Deleted it is the last state with the deletion's revision.
type Event struct {
	Type   EventType
	Object Object
	// Previous is the value before an update or deletion, and nil for Created.
	Previous []byte
}

// Getter is the part of a Store that reads one object.
type Getter interface {
	Get(ctx context.Context, key string) (Object, error)
}

// Lister is the part of a Store that reads many objects.
type Lister interface {
	// List returns up to limit objects whose key starts with prefix, sorted by key. 0 means all. cont is "" or Continue of
	// the previous page. SplitPrefix checks prefix.
	List(ctx context.Context, prefix string, limit int, cont string) (Page, error)
}

// Store stores objects. Every method stops when ctx ends. Except from Watch, errors wrap one of the package's errors or
// context.Canceled.
type Store interface {
	Getter
	Lister
	// Revision returns the store's current revision; 0 before the first write.
	Revision(ctx context.Context) (uint64, error)
	// Create stores a new object, or returns ErrExists.
	Create(ctx context.Context, key string, value []byte) (Object, error)
	// Update replaces the object if its revision is rev. Otherwise it returns ErrConflict or ErrNotFound.
	Update(ctx context.Context, key string, value []byte, rev uint64) (Object, error)
	// Delete deletes the object, with the errors of Update. The result is the last state with the deletion's revision.
	Delete(ctx context.Context, key string, rev uint64) (Object, error)
	// Watch calls the function each for every write that is newer than revision from and whose key starts with prefix.
	// The calls are in order of revision. An empty prefix means all objects. Watch returns ctx's error when ctx ends. If
	// each fails, Watch returns that error unchanged.
	//
	// After ErrCompacted the caller must list again: events above from were removed, or from exceeds the store's revision.
	// After ErrUnavailable or ErrForbidden it may watch again from its last revision. progress, if not nil, is called
	// every few seconds with a revision up to which all events were delivered.
	Watch(ctx context.Context, prefix string, from uint64, each func(Event) error, progress func(rev uint64)) error
}
