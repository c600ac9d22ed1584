package objects

import (
	"errors"
	"fmt"
	"time"
)

// Errors of every Store, wrapped with the key.
var (
	ErrNotFound    = errors.New("object not found")
	ErrExists      = errors.New("object exists already")
	ErrConflict    = errors.New("object was changed by another writer")
	ErrCompacted   = errors.New("history before this revision is gone")
	ErrForbidden   = errors.New("access to the object store is denied")
	ErrUnavailable = errors.New("object store is unavailable")
	ErrInvalid     = errors.New("invalid key, value or revision")
)

// Unavailable returns an error that wraps err and ErrUnavailable. after is the pause before a retry.
func Unavailable(err error, after time.Duration) error { return &unavailableError{err, after} }

// RetryAfter returns the pause before a retry, or 0 if err has none. The gateway sends it as Retry-After of a 503.
func RetryAfter(err error) time.Duration {
	var u *unavailableError
	if errors.As(err, &u) {
		return u.after
	}
	return 0
}

type unavailableError struct {
	err   error
	after time.Duration
}

func (e *unavailableError) Error() string { return fmt.Sprintf("%v: %v", ErrUnavailable, e.err) }

func (e *unavailableError) Unwrap() []error { return []error{ErrUnavailable, e.err} }
