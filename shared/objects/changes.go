package objects

import (
	"context"
	"errors"
	"fmt"
)

// Numbered is a Log in which each write has the revision after that of the write before it.
type Numbered interface {
	Revision(ctx context.Context) (uint64, error)
	Watch(
		ctx context.Context, prefix string, fromRev uint64, onEvent func(Event) error, onProgress func(rev uint64),
	) error
}

var errCaughtUp = errors.New("caught up")

// ChangesOf implements Log.Changes for a numbered log.
func ChangesOf(ctx context.Context, log Numbered, fromRev uint64, limit int) ([]Event, uint64, error) {
	last, err := log.Revision(ctx)
	switch {
	case err != nil:
		return nil, 0, err
	case last == fromRev:
		return nil, fromRev, nil
	case last < fromRev:
		return nil, 0, fmt.Errorf("%w: revision %d exceeds the store's revision %d", ErrCompacted, fromRev, last)
	case last-fromRev > uint64(max(0, limit)):
		return nil, 0, fmt.Errorf("%w: %d writes after revision %d, want at most %d", ErrCompacted, last-fromRev, fromRev,
			limit)
	}
	var changes []Event
	err = log.Watch(ctx, "", fromRev, func(e Event) error {
		changes = append(changes, e)
		if e.Object.Revision >= last { // every write has its own revision, so this one arrives
			return errCaughtUp
		}
		return nil
	}, nil)
	if !errors.Is(err, errCaughtUp) {
		return nil, 0, err
	}
	return changes, changes[len(changes)-1].Object.Revision, nil
}
