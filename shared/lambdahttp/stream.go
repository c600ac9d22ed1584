package lambdahttp

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
)

// Stream is the response to an invocation. The caller reads it to its end or an error, and then closes it. Only one
// goroutine may read, but another one may call Close.
//
// An error of Read means that the response was cut off. The reader must not forward it as complete. aws-lambda-go
// reports this to Lambda in trailers.
type Stream struct {
	r           io.Reader
	contentType string
	close       func()
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) { return s.r.Read(p) }

// ContentType returns the payload's type for Lambda, which makes API Gateway parse the prelude.
func (s *Stream) ContentType() string { return s.contentType }

// Close cancels the handler's context, fails its writes and waits for its end. So nothing of one invocation remains in
// the next.
func (s *Stream) Close() error {
	s.close()
	return nil
}

const preludeEnd = "\x00\x00\x00\x00\x00\x00\x00\x00"

// streamed is the sink for REST APIs that stream. Like net/http it buffers up to 4 KiB until a flush.
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
		_ = pw.CloseWithError(f.streamTo(ctx, in, ev, pw)) // nil is the end of the response
	}()
	return &Stream{r: pr, contentType: "application/vnd.awslambda.http-integration-response", close: func() {
		_ = pr.Close()
		cancel()
		<-done
	}}
}

// streamTo writes the response, or a Status if nothing was sent yet. Its error means that a started response was cut
// off.
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
