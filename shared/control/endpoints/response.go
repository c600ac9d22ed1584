package endpoints

import (
	"net/http"
	"slices"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/warning"
)

// response adds the warnings to a response when its header is written. It has the interfaces that handlers expect by
// type assertion.
type response struct {
	http.ResponseWriter
	warnings warnings
	started  bool
}

func (r *response) WriteHeader(code int) {
	if !r.started && code >= http.StatusOK {
		r.started = true
		r.warnings.writeTo(r.Header())
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *response) Write(p []byte) (int, error) {
	if !r.started {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(p)
}

func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush flushes if the underlying writer can.
func (r *response) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

// CloseNotify returns no channel, since contexts report closed connections. Without the method, handlers never flush.
func (*response) CloseNotify() <-chan bool { return nil }

const (
	// maxWarnings bounds the bytes of all warnings in a response. Clients refuse responses with large headers.
	maxWarnings = 4096
	maxWarning  = 256 // characters of each
	// miscellaneous is the warn-code of persistent warnings in RFC 7234.
	miscellaneous = 299
)

// warnings collects the warnings of a handler. After a timeout, the handler may still add some while another goroutine
// writes the response, so AddWarning does not touch the header.
type warnings struct {
	mu     sync.Mutex
	values []string // as in the header
	size   int
}

var _ warning.Recorder = (*warnings)(nil)

// AddWarning implements warning.Recorder. It shortens long warnings, and omits repeated ones. Beyond maxWarnings, it
// drops the oldest, because the gateway's own advice comes last.
func (w *warnings) AddWarning(agent, text string) {
	if runes := []rune(text); len(runes) > maxWarning {
		text = string(runes[:maxWarning])
	}
	value, err := utilnet.NewWarningHeader(miscellaneous, agent, text)
	if err != nil { // the text is not one line of UTF-8
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.values, value) {
		return
	}
	w.values, w.size = append(w.values, value), w.size+len(value)
	for w.size > maxWarnings {
		w.size -= len(w.values[0])
		w.values = w.values[1:]
	}
}

func (w *warnings) writeTo(h http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, value := range w.values {
		h.Add("Warning", value)
	}
}
