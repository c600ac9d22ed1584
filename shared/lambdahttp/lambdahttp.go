package lambdahttp

import (
	"bytes"
	"context"
	"encoding/json"
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
	// MaxResponse lowers the size in bytes that a buffered answer may have as JSON. 0 is what the front takes: ALBLimit or
	// LambdaLimit. More than that is never used.
	MaxResponse int
	// Overflow chooses who answers in place of an answer that is too large, given the request and that answer's status and
	// headers (nil if it was none). The request's context is alive, its body may have been read. nil, or a nil Handler:
	// 413 as a metav1.Status.
	Overflow func(r *http.Request, status int, header http.Header) http.Handler
	// Stream says that REST API events come with ResponseTransferMode STREAM: their answers have no limit and are sent as
	// they are written. Other events are answered as ever.
	Stream bool
	// Margin is how long before the end of the invocation the request's context ends, so that the handler can still say 504. 0 is
	// 500 ms. It shrinks to a quarter where little time is left.
	Margin time.Duration
	// Log gets the panics of the handler. nil is slog.Default().
	Log *slog.Logger
}

// Function is an http.Handler as a Lambda function. It is safe for concurrent use.
type Function struct {
	handler http.Handler
	opts    Options
	server  *http.Server // never serves; see context
}

// New returns handler as a function.
func New(handler http.Handler, opts Options) *Function {
	if opts.Margin <= 0 {
		opts.Margin = 500 * time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &Function{handler, opts, &http.Server{ReadHeaderTimeout: time.Second}}
}

// Start serves invocations from the Lambda Runtime API. It does not return: the process ends when the API is gone.
func Start(handler http.Handler, opts Options) {
	f := New(handler, opts)
	if !opts.Stream {
		lambda.Start(f)
		return
	}
	lambda.Start(func(ctx context.Context, payload json.RawMessage) (*Stream, error) {
		return f.InvokeStream(ctx, payload)
	})
}

// Invoke answers one event with one JSON document, as lambda.Handler does. Its error is an ErrEvent: whatever the handler does
// becomes an answer.
func (f *Function) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	in, ev, err := parse(payload)
	if err != nil {
		return nil, err
	}
	return f.buffered(ctx, in, ev), nil
}

// InvokeStream is Invoke for functions that stream: to a REST API the answer is its prelude and its body, to others
// the document of Invoke.
func (f *Function) InvokeStream(ctx context.Context, payload []byte) (*Stream, error) {
	in, ev, err := parse(payload)
	if err != nil {
		return nil, err
	}
	if ev.Kind == REST {
		return f.stream(ctx, in, ev), nil
	}
	return &Stream{r: bytes.NewReader(f.buffered(ctx, in, ev)), contentType: "application/json", close: func() {}}, nil
}

// buffered runs the handler, and what answers in its place should it fail.
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
		// Handlers often abort when a Write fails, so the cause is the writer's.
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

// context is what every request's context holds. The deadline leaves time to answer.
func (f *Function) context(ctx context.Context, ev *Event) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(ctx, eventKey{}, ev)
	// httputil.ReverseProxy aborts a broken answer only if it believes to run in a server, else it returns as if all
	// were well.
	ctx = context.WithValue(ctx, http.ServerContextKey, f.server)
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(f.opts.Margin, max(0, time.Until(end))/4)))
}

// request is the event's request and who answers it: the handler, or a 400.
func (f *Function) request(ctx context.Context, in *wire, ev *Event) (*http.Request, http.Handler) {
	r, err := in.request(ev)
	if err == nil {
		return r.WithContext(ctx), f.handler
	}
	r = &http.Request{Method: http.MethodGet, Header: http.Header{}, Body: http.NoBody}
	return r.WithContext(ctx), failure{status.New(status.BadRequest, "", "the request cannot be understood: %v", err)}
}

// failure answers with an error of the gateway's own.
type failure struct{ err *status.Error }

func (f failure) ServeHTTP(w http.ResponseWriter, _ *http.Request) { status.Write(w, f.err) }

// call runs the handler to its end. It returns nil if its answer is whole, else what is to be said in its place.
func (f *Function) call(handler http.Handler, w *writer, r *http.Request) (failed *status.Error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		failed = errAborted
		if v != http.ErrAbortHandler { //nolint:errorlint // net/http compares so
			failed = status.New(status.Internal, "", "the gateway failed to handle the call; its log has the cause")
			f.opts.Log.ErrorContext(r.Context(), "the handler panicked",
				"method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	handler.ServeHTTP(w, r)
	if w.untouched() && r.Context().Err() != nil {
		return status.New(status.Timeout, "", "the call took longer than the function may run")
	}
	if w.finish() {
		return nil
	}
	return errAborted
}

// What is said in place of an answer that cannot be sent.
var (
	errAborted  = status.New(status.Aborted, "", "the answer broke off before it could be sent; try again")
	errTooLarge = status.New(status.TooLarge, "",
		"the answer is larger than the front door takes; ask for less, for instance with limit=100")
)
