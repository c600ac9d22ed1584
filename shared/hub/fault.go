package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is the meaning of an error for a store.
type Fault int

// The faults.
const (
	Refused     Fault = iota // the request itself
	NotFound                 // the object does not exist
	Exists                   // the object exists already
	Conflict                 // another writer was faster
	Expired                  // the resourceVersion or the continue token is too old
	Forbidden                // the credential, its rights, or a quota
	Throttled                // too many requests
	Unavailable              // the API server, the network or a timeout
	Missing                  // the namespace or the CustomResourceDefinition of the store
)

// FaultOf classifies an error of a Client, which must not be nil.
func FaultOf(err error) Fault {
	var e *Error
	if !errors.As(err, &e) {
		return Unavailable
	}
	switch e.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return Forbidden
	case http.StatusNotFound:
		if e.Details == nil || e.Details.Name == "" || e.Details.Kind == "namespaces" {
			return Missing
		}
		return NotFound
	case http.StatusConflict:
		if e.Reason == metav1.StatusReasonAlreadyExists {
			return Exists
		}
		return Conflict
	case http.StatusGone:
		return Expired
	case http.StatusTooManyRequests:
		return Throttled
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return Refused
	}
	if e.Code >= http.StatusInternalServerError {
		return Unavailable
	}
	return Refused
}

// RetryAfter returns the pause before a retry after err. 0 means that a retry is useless.
func RetryAfter(err error) time.Duration {
	var e *Error
	var asked time.Duration
	if errors.As(err, &e) {
		asked = e.after
	}
	switch FaultOf(err) {
	case Throttled:
		return cmp.Or(asked, 5*time.Second)
	case Unavailable:
		return cmp.Or(asked, 2*time.Second)
	case Missing:
		return 5 * time.Second
	}
	return 0
}

// StoreErrors are the errors of one kind of store.
type StoreErrors struct {
	// Reasons has no Throttled, Unavailable and Missing. Without Expired, that is unavailable.
	Reasons     map[Fault]error
	Unavailable func(err error, retryAfter time.Duration) error
	// Known are other errors of the store, which stay as they are.
	Known []error
	// Lack is what a hub without the store lacks besides the namespace, such as " or no definition". Optional.
	Lack string
}

// Explain wraps err with one of the errors of the store, unless it wraps one already, or context.Canceled.
func (c *Client) Explain(op, key string, err error, e StoreErrors) error {
	for _, known := range append(slices.Collect(maps.Values(e.Reasons)), append(e.Known, context.Canceled)...) {
		if errors.Is(err, known) {
			return fmt.Errorf("%s %s: %w", op, key, err)
		}
	}
	fault := FaultOf(err)
	switch reason := e.Reasons[fault]; {
	case reason != nil:
		return fmt.Errorf("%s %s: %w: %w", op, key, reason, err)
	case fault == Missing:
		return fmt.Errorf("%s %s: %w: the hub has no namespace %s%s; run clusterpass --store %s init", op, key,
			e.Unavailable(err, RetryAfter(err)), c.cfg.Namespace, e.Lack, cmp.Or(c.cfg.Store, "kubernetes:"+c.cfg.Namespace))
	}
	return fmt.Errorf("%s %s: %w", op, key, e.Unavailable(err, max(time.Second, RetryAfter(err))))
}

// Discreet returns err without the API server's message, which may quote the request. FaultOf and RetryAfter return the
// same for it, except for a quota and a lacking right, which keep their message.
func Discreet(err error) error {
	var e *Error
	if !errors.As(err, &e) || FaultOf(err) != Refused {
		return err
	}
	out := *e
	out.Message = ""
	return &out
}
