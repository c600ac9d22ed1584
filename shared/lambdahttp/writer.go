package lambdahttp

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// ErrTooLarge is what Write returns, and the cause of the request's cancelled context, once the answer will not fit.
var ErrTooLarge = errors.New("the answer is larger than the front door takes")

var (
	errFinished = errors.New("the handler has returned")
	errShort    = errors.New("the handler wrote less than its Content-Length")
	errUpgrade  = errors.New("a function cannot switch protocols")
)

// sink takes an answer in one of the ways that Lambda knows.
type sink interface {
	// expect is told the Content-Length before anything else, if there is one. The headers may still lack a guessed
	// Content-Type.
	expect(status int, header http.Header, length int64) error
	// begin takes the status and the final headers, once, before the body.
	begin(status int, header http.Header) error
	Write(p []byte) (int, error)
	flush() error
	// end comes once, after the whole body.
	end() error
}

// writer is the http.ResponseWriter of a function: net/http's rules, over a sink. It may be used by several goroutines.
type writer struct {
	mu       sync.Mutex
	method   string
	sink     sink
	fail     func(error) // told of the sink's first error, to stop the handler
	header   http.Header // the handler's, alive until WriteHeader
	status   int         // 0: WriteHeader was not called
	final    http.Header // a copy as of WriteHeader
	sniff    bool        // the Content-Type is to be guessed
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

// WriteHeader implements http.ResponseWriter. Informational answers are dropped: the fronts cannot send them.
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
		panic(fmt.Sprintf("invalid status code %d", status)) // as net/http does
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
	_, typed := w.header["Content-Type"] // also when set to nil, as net/http has it
	w.sniff = !typed && w.final.Get("Content-Encoding") == ""
	if w.method == http.MethodHead || !bodyAllowed(status) {
		return
	}
	if n, err := strconv.ParseInt(w.final.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		w.declared = n
	}
	w.final.Del("Content-Length") // the fronts compute it from the body
	if w.declared >= 0 {
		w.setErr(w.sink.expect(status, w.final, w.declared)) // what cannot fit is known before a byte of it is read
	}
}

// endToEnd copies the headers that concern the client: not those of the connection, nor trailers.
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

// begin gives the headers to the sink, once. start is the beginning of the body.
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

// Write implements http.ResponseWriter. It returns ErrTooLarge from the moment at which the answer cannot fit.
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

// FlushError is what http.ResponseController calls. It sends what there is when streaming and does nothing otherwise, but
// fixes the headers either way.
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

// EnableFullDuplex is for http.ResponseController: the request's body is in memory and can always be read.
func (w *writer) EnableFullDuplex() error { return nil }

// finish ends the answer after the handler returned without a panic. It reports whether the answer is whole.
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

// stop refuses further writes and tells what the handler did.
func (w *writer) stop() (status int, header http.Header, begun bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	return w.status, w.final, w.begun, w.err
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// untouched tells whether the handler said nothing at all.
func (w *writer) untouched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status == 0
}
