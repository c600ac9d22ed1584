package lambdahttp

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// ErrTooLarge is returned by Write when the response exceeds the limit. It is then also the cause of the request's
// cancelled context.
var ErrTooLarge = errors.New("the response exceeds the limit of the load balancer")

var (
	errFinished = errors.New("the handler has returned")
	errShort    = errors.New("the handler wrote less than its Content-Length")
	errUpgrade  = errors.New("a function cannot switch protocols")
)

// sink sends a response in one of Lambda's forms.
type sink interface {
	// expect is called first if the Content-Length is known. A guessed Content-Type may still be missing in header.
	expect(status int, header http.Header, length int64) error
	// begin is called once, before the body, with the final headers.
	begin(status int, header http.Header) error
	Write(p []byte) (int, error)
	flush() error
	// end is called once, after the complete body.
	end() error
}

// writer is the http.ResponseWriter of a function. It applies net/http's rules. It is safe for concurrent use.
type writer struct {
	mu       sync.Mutex
	method   string
	sink     sink
	fail     func(error) // called with the sink's first error, to stop the handler
	header   http.Header // the handler's headers, mutable until WriteHeader
	status   int         // 0 before WriteHeader
	final    http.Header // a copy, made by WriteHeader
	sniff    bool        // the Content-Type must be guessed
	declared int64       // Content-Length, or -1
	written  int64
	begun    bool // the sink has the headers
	err      error
	done     bool
}

func newWriter(method string, s sink, fail func(error)) *writer {
	return &writer{method: method, sink: s, fail: fail, header: make(http.Header), declared: -1}
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational responses are dropped, because no front can send them.
func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

func (w *writer) writeHeader(status int) {
	if w.status != 0 || w.done {
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid status code %d", status)) // like net/http
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	if status == http.StatusSwitchingProtocols {
		w.setErr(errUpgrade)
		return
	}
	w.final = endToEnd(w.header)
	_, typed := w.header["Content-Type"] // also if it is set to nil, as in net/http
	w.sniff = !typed && w.final.Get("Content-Encoding") == ""
	if w.method == http.MethodHead || !bodyAllowed(status) {
		return
	}
	if n, err := strconv.ParseInt(w.final.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		w.declared = n
	}
	w.final.Del("Content-Length") // the fronts compute it from the body
	if w.declared >= 0 {
		w.setErr(w.sink.expect(status, w.final, w.declared)) // fails at once if the body cannot fit
	}
}

// endToEnd copies the headers that concern the client, without those of the connection and trailers.
func endToEnd(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for k, v := range h {
		if len(v) > 0 && !strings.HasPrefix(k, http.TrailerPrefix) {
			out[k] = append([]string(nil), v...)
		}
	}
	for _, k := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Trailer", "Transfer-Encoding", "Upgrade"} {
		delete(out, k)
	}
	return out
}

// begin passes the headers to the sink, once. start is the beginning of the body.
func (w *writer) begin(start []byte) {
	if w.begun || w.err != nil {
		return
	}
	w.begun = true
	if w.sniff && len(start) > 0 {
		w.final.Set("Content-Type", http.DetectContentType(start))
	}
	w.setErr(w.sink.begin(w.status, w.final))
}

func (w *writer) setErr(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.fail(err)
	}
}

// Write implements http.ResponseWriter. It returns ErrTooLarge as soon as the response cannot fit.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return 0, errFinished
	}
	w.writeHeader(http.StatusOK)
	switch {
	case w.err != nil:
		return 0, w.err
	case !bodyAllowed(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.declared >= 0 && w.written+int64(len(p)) > w.declared:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if len(p) == 0 {
		return 0, nil
	}
	w.begin(p)
	if w.method == http.MethodHead {
		return len(p), w.err
	}
	if w.err == nil {
		n, err := w.sink.Write(p)
		if w.setErr(err); err == nil {
			return n, nil
		}
	}
	return 0, w.err
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError implements the method for http.ResponseController. It fixes the headers. It sends buffered data only when
// streaming.
func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return errFinished
	}
	w.writeHeader(http.StatusOK)
	w.begin(nil)
	if w.err == nil {
		w.setErr(w.sink.flush())
	}
	return w.err
}

// EnableFullDuplex implements the method for http.ResponseController. The request's body is in memory and can always be
// read.
func (w *writer) EnableFullDuplex() error { return nil }

// finish ends the response after the handler returned without a panic. It reports whether the response is complete.
func (w *writer) finish() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	if w.written < w.declared {
		w.setErr(errShort)
	}
	w.begin(nil)
	if w.err == nil {
		w.setErr(w.sink.end())
	}
	w.done = true
	return w.err == nil
}

// stop refuses further writes and returns the state of the response.
func (w *writer) stop() (status int, header http.Header, begun bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	return w.status, w.final, w.begun, w.err
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// untouched reports whether the handler wrote nothing at all.
func (w *writer) untouched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status == 0
}
