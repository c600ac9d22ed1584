package lambdahttp

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
)

// Stream is the answer to an invocation. Read it to the end or to an error, then Close it. It is for one
// goroutine; Close may be called from another.
//
// An error of Read means that the answer broke off: the reader must not pass on what it has as if it were whole.
// aws-lambda-go tells Lambda by trailers.
type Stream struct {
	r           io.Reader
	contentType string
	close       func()
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) { return s.r.Read(p) }

// ContentType is the type of the payload towards Lambda, which makes API Gateway look for the prelude.
func (s *Stream) ContentType() string { return s.contentType }

// Close ends the handler if it still runs (its context is cancelled, its writes fail) and waits for it, so that
// nothing of one invocation is left in the next.
func (s *Stream) Close() error {
	s.close()
	return nil
}

// preludeEnd divides the prelude from the body.
const preludeEnd = "\x00\x00\x00\x00\x00\x00\x00\x00"

// streamed is the sink for REST APIs that stream. Like net/http it holds up to 4 KiB until a flush.
type streamed struct{ w *bufio.Writer }

func (s streamed) expect(int, http.Header, int64) error { return nil }

func (s streamed) begin(status int, header http.Header) error {
	b := strconv.AppendInt([]byte(`{"statusCode":`), int64(status), 10)
	b = append(b, `,"multiValueHeaders":`...)
	b = append(appendMulti(b, header), '}')
	_, err := s.w.Write(append(b, preludeEnd...))
	return err
}

func (s streamed) Write(p []byte) (int, error) { return s.w.Write(p) }
func (s streamed) flush() error                { return s.w.Flush() }
func (s streamed) end() error                  { return s.w.Flush() }

// stream runs the handler in a goroutine that ends with the Stream.
func (f *Function) stream(ctx context.Context, in *wire, ev *Event) *Stream {
	pr, pw := io.Pipe()
	ctx, cancel := f.context(ctx, ev)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = pw.CloseWithError(f.streamTo(ctx, in, ev, pw)) // nil: the end of the answer
	}()
	return &Stream{r: pr, contentType: "application/vnd.awslambda.http-integration-response", close: func() {
		_ = pr.Close()
		cancel()
		<-done
	}}
}

// streamTo writes the answer, or a Status if nothing of it was sent. It returns why a begun answer broke off.
func (f *Function) streamTo(ctx context.Context, in *wire, ev *Event, to io.Writer) error {
	sink := streamed{bufio.NewWriterSize(to, 4<<10)}
	r, handler := f.request(ctx, in, ev)
	for {
		ctx, cancel := context.WithCancelCause(ctx)
		w := newWriter(r.Method, sink, cancel)
		failed := f.call(handler, w, r.WithContext(ctx))
		cancel(nil)
		if failed == nil {
			return nil
		}
		if _, _, begun, _ := w.stop(); begun {
			return failed
		}
		handler = failure{failed}
	}
}
