package secrets

import (
	"errors"
	"fmt"
	"time"
)

// Errors of every Store, wrapped with the name of the secret.
var (
	ErrNotFound    = errors.New("secret not found")
	ErrExists      = errors.New("secret exists already")
	ErrConflict    = errors.New("secret was changed by another writer")
	ErrForbidden   = errors.New("access to the secret is denied")
	ErrUnavailable = errors.New("secret store is unavailable")
	ErrInvalid     = errors.New("invalid secret")
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
