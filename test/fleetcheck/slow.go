package main

import (
	"errors"
	"fmt"
	"net/http"
)

// slowError is a result that a busy machine explains: a healthy cluster did not answer in time. The caller tries again.
type slowError struct{ err error }

func (e *slowError) Error() string { return e.err.Error() }
func (e *slowError) Unwrap() error { return e.err }

func isSlow(err error, into **slowError) bool { return errors.As(err, into) }

func slowIfUnavailable(err error) error {
	var r *refusal
	if errors.As(err, &r) && isUnavailable(r.answer.code) {
		return &slowError{err}
	}
	return err
}

func isUnavailable(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout ||
		code == http.StatusTooManyRequests
}

func wantUnavailable(operation string, a *answer) error {
	if _, err := a.status(); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if !isUnavailable(a.code) {
		return fmt.Errorf("%s: code %d, want one of a cluster that does not answer: %s", operation, a.code, head(a.body))
	}
	return nil
}
