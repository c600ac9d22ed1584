package lambdahttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/clusterpass/clusterpass/shared/status"
)

// Options of a Function. The zero value is ready to use.
type Options struct {
	// MaxResponse is the maximum size in bytes of a response as JSON, if it is lower than the front's limit. 0
	// means that limit: ALBLimit or LambdaLimit.
	MaxResponse int
	// Overflow returns the handler that replaces a response that is too large. status and header are those of that
	// response, or 0 and nil. The request's context is not cancelled, but its body may have been read. Without a handler,
	// the response is a 413 as a metav1.Status.
	Overflow func(r *http.Request, status int, header http.Header) http.Handler
	// Margin is the time between the end of the request's context and that of the invocation, so that the handler can
	// respond with 504. 0 means 500 ms. It is at most a quarter of the remaining time.
	Margin time.Duration
	// Log receives panics of the handler. nil means slog.Default().
	Log *slog.Logger
}

// Function runs an http.Handler as a Lambda function. It is safe for concurrent use.
type Function struct {
	handler http.Handler
	opts    Options
	server  *http.Server // never serves; see context
}

// New returns a Function for handler.
func New(handler http.Handler, opts Options) *Function {
	if opts.Margin <= 0 {
		opts.Margin = 500 * time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &Function{handler, opts, &http.Server{ReadHeaderTimeout: time.Second}}
}

// Start serves invocations from the Lambda Runtime API. It does not return. The process exits when the API is gone.
func Start(handler http.Handler, opts Options) {
	lambda.Start(New(handler, opts))
}

// Invoke responds to one event with one JSON document, like lambda.Handler. It returns an error only for an invalid
// event. Every failure of the handler becomes a response.
func (f *Function) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	in, ev, err := parse(payload)
	if err != nil {
		return nil, err
	}
	return f.buffered(ctx, in, ev), nil
}

// buffered runs the handler. If its response cannot be sent, it runs a replacement.
func (f *Function) buffered(ctx context.Context, in *wire, ev *Event) []byte {
	ctx, cancel := f.context(ctx, ev)
	defer cancel()
	front := LambdaLimit
	if ev.Kind == ALB {
		front = ALBLimit
	}
	limit := front
	if f.opts.MaxResponse > 0 {
		limit = min(limit, f.opts.MaxResponse)
	}
	multi := ev.Kind == REST || in.MultiValueHeaders != nil

	r, handler := f.request(ctx, in, ev)
	for overflowed := false; ; limit = front {
		ctx, cancel := context.WithCancelCause(ctx)
		buf := &buffer{ev: ev, multi: multi, limit: limit}
		w := newWriter(r.Method, buf, cancel)
		failed := f.call(handler, w, r.WithContext(ctx))
		cancel(nil)
		if failed == nil {
			return buf.json()
		}
		handler = failure{failed}
		// Handlers often abort when a Write fails, so check the writer's error first.
		if code, header, _, err := w.stop(); errors.Is(err, ErrTooLarge) {
			handler = failure{errTooLarge}
			if f.opts.Overflow != nil && !overflowed {
				if h := f.opts.Overflow(r, code, header); h != nil {
					handler = h
				}
			}
			overflowed = true
		}
	}
}

// context returns the context of a request. Its deadline leaves time for a response.
func (f *Function) context(ctx context.Context, ev *Event) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(ctx, eventKey{}, ev)
	// httputil.ReverseProxy aborts a cut response only if the context contains a server. Otherwise it returns as if the
	// response were complete.
	ctx = context.WithValue(ctx, http.ServerContextKey, f.server)
	end, ok := ctx.Deadline()
	ev.Deadline = end
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(f.opts.Margin, max(0, time.Until(end))/4)))
}

// request returns the event's request and its handler: the function's, or one that responds with 400.
func (f *Function) request(ctx context.Context, in *wire, ev *Event) (*http.Request, http.Handler) {
	r, err := in.request(ev)
	if err == nil {
		return r.WithContext(ctx), f.handler
	}
	r = &http.Request{Method: http.MethodGet, Header: http.Header{}, Body: http.NoBody}
	return r.WithContext(ctx), failure{status.New(status.BadRequest, "", "the request cannot be understood: %v", err)}
}

type failure struct{ err *status.Error }

func (f failure) ServeHTTP(w http.ResponseWriter, _ *http.Request) { status.Write(w, f.err) }

// call runs the handler. It returns nil if the response is complete, and otherwise the error to send instead.
func (f *Function) call(handler http.Handler, w *writer, r *http.Request) (failed *status.Error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		failed = errAborted
		if v != http.ErrAbortHandler { //nolint:errorlint // net/http compares in the same manner
			failed = status.New(status.Internal, "", "the gateway failed to handle the call; its log has the cause")
			f.opts.Log.ErrorContext(r.Context(), "the handler panicked",
				"method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	handler.ServeHTTP(w, r)
	if w.untouched() && r.Context().Err() != nil {
		return status.New(status.Timeout, "", "the call exceeded the time limit of the function")
	}
	if w.finish() {
		return nil
	}
	return errAborted
}

// Responses that replace one that cannot be sent.
var (
	errAborted  = status.New(status.Aborted, "", "the response was cut off before it could be sent; try again")
	errTooLarge = status.New(status.TooLarge, "",
		"the response exceeds the limit of the load balancer; request less, for instance with limit=100")
)
