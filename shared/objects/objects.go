// Package objects stores the gateway's own API objects, such as clusters, roles and passes. The sub-packages dir,
// dynamo and kubernetes implement [Store].
//
//   - A store has one revision, which each successful write increases. Clients see it as resourceVersion. The revision
//     of package kubernetes is that of the hub cluster's etcd, so other writes to the hub also increase it.
//   - Each write adds an event to a log, which Watch reads. Old events are eventually removed.
//   - A read sees every write that returned before the read began.
//   - A Store is safe for concurrent use. Several processes may open the same store.
package objects

import "context"

// MaxValue is the maximum size of a value in bytes. The log entry of an update contains the new and the old value in
// one DynamoDB item, of at most 400 KB.
const MaxValue = 192 << 10

// Object is a value with its key and revisions.
type Object struct {
	// Key has the form resource/name, e.g. "clusters/member1". See ValidKey.
	Key string
	// Value has at most MaxValue bytes. Callers must not change a Value that a Store returned.
	Value []byte
	// Revision is the revision of the last write. Created is the revision of the creation. In a hub cluster, the event of
	// a deletion has no Created if the object was never updated.
	Revision, Created uint64
}

// Page is one page of a list.
type Page struct {
	Objects []Object
	// Revision is the store's revision when the first page was read. A Watch from this revision misses no later write.
	Revision uint64
	// Continue is the token for the next page, or empty. Every page may include writes after Revision.
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

// Event is one write. Object is the state after the write. For Deleted, it is the last state, with the revision of the
// deletion.
type Event struct {
	Type   EventType
	Object Object
	// Previous is the value before an update or deletion, and nil for Created.
	Previous []byte
}

// Getter is the part of a Store that reads one object. Get returns ErrNotFound for a missing object.
type Getter interface {
	Get(ctx context.Context, key string) (Object, error)
}

// Lister is the part of a Store that reads many objects.
type Lister interface {
	// List returns up to limit objects whose key starts with prefix, sorted by key. A limit of 0 means all. prefix has at
	// least a resource and a slash, e.g. "clusters/". cont is empty or Continue of the previous page.
	List(ctx context.Context, prefix string, limit int, cont string) (Page, error)
}

// Log is the part of a Store that reads its writes.
type Log interface {
	// Revision returns the store's current revision, which is at least that of every completed write.
	Revision(ctx context.Context) (uint64, error)
	// Changes returns the writes whose revision is greater than fromRev and at most lastRev, in order. lastRev is at least
	// the revision of every write that was completed before the call. Changes returns ErrCompacted if there are more than
	// limit writes, or if Watch would return it for fromRev. If limit is 0, Changes may return ErrCompacted even if there
	// was no write.
	Changes(ctx context.Context, fromRev uint64, limit int) (changes []Event, lastRev uint64, err error)
	// Watch calls onEvent, in order of revision, for every write whose revision is greater than fromRev and whose key
	// starts with prefix. An empty prefix means all objects. Watch calls onProgress, unless nil, after events and every
	// few seconds. A call means that all matching events up to rev were delivered.
	//
	// If onEvent fails, Watch returns that error unchanged. When ctx ends, Watch returns an error that wraps ctx.Err().
	// After ErrCompacted, the caller must list again: events after fromRev were removed, or fromRev exceeds the store's
	// revision. In a hub cluster, Watch always returns ErrCompacted for fromRev 0. After ErrUnavailable or ErrForbidden,
	// the caller may watch again from the last revision that it received.
	Watch(
		ctx context.Context, prefix string, fromRev uint64, onEvent func(Event) error, onProgress func(rev uint64),
	) error
}

// Store stores objects. When ctx ends, reads return at once. A write that has begun may be completed first, so its
// call may return later. Errors wrap one of the package's errors or context.Canceled; Watch may return others. A write
// that fails with ErrUnavailable or context.Canceled may have succeeded.
type Store interface {
	Getter
	Lister
	Log
	// Create stores a new object, or returns ErrExists.
	Create(ctx context.Context, key string, value []byte) (Object, error)
	// Update replaces the object if its revision is rev. It returns ErrConflict if the object has another revision, and
	// ErrNotFound if there is none.
	Update(ctx context.Context, key string, value []byte, rev uint64) (Object, error)
	// Delete deletes the object, with the condition and errors of Update. It returns the deleted object. Its Revision is
	// at least that of the deletion. In a hub cluster Revision may be greater, since the API server does not return the
	// revision of a deletion.
	Delete(ctx context.Context, key string, rev uint64) (Object, error)
}
