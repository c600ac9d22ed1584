package objects

import (
	"context"
	"errors"
)

// Log is the part of a Store that reads its log.
type Log interface {
	Revision(ctx context.Context) (uint64, error)
	Watch(
		ctx context.Context, prefix string, fromRev uint64, onEvent func(Event) error, onProgress func(rev uint64),
	) error
}

var errCaughtUp = errors.New("caught up")

// Changes returns the writes of the revisions from+1 to last, in order. After ErrCompacted the caller must list again.
func Changes(ctx context.Context, log Log, from, last uint64) ([]Event, error) {
	var changes []Event
	err := log.Watch(ctx, "", from, func(e Event) error {
		changes = append(changes, e)
		if e.Object.Revision >= last { // every write has its own revision, so this one arrives
			return errCaughtUp
		}
		return nil
	}, nil)
	if errors.Is(err, errCaughtUp) {
		return changes, nil
	}
	return nil, err
}
