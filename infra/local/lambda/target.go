package lambda

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Front is the AWS service in front of functions: event's ALB, REST or HTTP.
type Front interface {
	Event(r *http.Request) ([]byte, error)
	Answer(w http.ResponseWriter, r *http.Request, payload []byte) error
	Refuse(w http.ResponseWriter, code int)
}

// Target is an http.Handler: a front whose target is a function.
type Target struct {
	Invoker Invoker
	Front   Front
	Log     *slog.Logger // logs refused and failed requests; nil means slog.Default()
}

const retryAfter = time.Second

// ServeHTTP invokes the function. Its failure is a 502, as from an ALB. Throttling is a 429, so that clients retry.
func (t Target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	payload, err := t.Front.Event(r)
	if err == nil {
		var answer []byte
		if answer, err = t.Invoker.Invoke(r.Context(), payload); err == nil {
			err = t.Front.Answer(w, r, answer)
		}
	}
	if err == nil {
		return
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone, or the server stops: a return would mean a response of 200
	}
	code := http.StatusBadGateway
	var refusal *event.Refusal
	switch {
	case errors.As(err, &refusal):
		code = refusal.Code
	case errors.Is(err, ErrRequestTooLarge):
		code = http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrThrottled):
		code = http.StatusTooManyRequests
	}
	log := t.Log
	if log == nil {
		log = slog.Default()
	}
	log.WarnContext(r.Context(), "the front answers itself", "method", r.Method, "path", r.URL.Path, "code", code,
		"error", err)
	if errors.Is(err, ErrThrottled) {
		const text = "the request was not handled: all functions are busy; try again in %s"
		throttled := status.New(status.TooManyRequests, "", text, retryAfter)
		throttled.RetryAfter = retryAfter
		status.Write(w, throttled)
		return
	}
	t.Front.Refuse(w, code)
}

// Inline runs a function, usually a lambdahttp.Function, in this process with Lambda's limits.
type Inline struct {
	Function Invoker
	Timeout  time.Duration // of an invocation; 0 is 30 s
}

// Invoke implements Invoker. As on Lambda, the end of ctx does not end the invocation.
func (i Inline) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if len(payload) > RequestLimit {
		return nil, ErrRequestTooLarge
	}
	timeout := i.Timeout
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	b, err := i.Function.Invoke(ctx, payload)
	switch {
	case err != nil:
		return nil, &FunctionError{"Runtime.Unknown", err.Error()}
	case len(b) > ResponseLimit:
		return nil, &FunctionError{"Function.ResponseSizeTooLarge",
			"Response payload size exceeded maximum allowed payload size."}
	}
	return b, nil
}
