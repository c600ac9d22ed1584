package lambda

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html and .../runtimes-custom.html
const (
	headerRequestID = "Lambda-Runtime-Aws-Request-Id"
	headerDeadline  = "Lambda-Runtime-Deadline-Ms"
	headerARN       = "Lambda-Runtime-Invoked-Function-Arn"
	headerTrace     = "Lambda-Runtime-Trace-Id"
	headerErrorType = "Lambda-Runtime-Function-Error-Type"
	headerErrorBody = "Lambda-Runtime-Function-Error-Body"
	headerMode      = "Lambda-Runtime-Function-Response-Mode"
)

const maxErrorBody = 1 << 20

func (p *process) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", p.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", p.response)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", p.error)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", p.initError)
	return mux
}

func (p *process) next(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if p.waiting || p.dead || p.cur != nil && !p.answered {
		p.mu.Unlock()
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the runtime may not ask for an event now")
		return
	}
	p.waiting = true
	inv := p.cur
	p.cur = nil
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.waiting = false
		p.mu.Unlock()
	}()

	if inv != nil {
		p.deadline.Stop()
		p.served++
		p.f.release(p)
		close(inv.finished)
	} else {
		select {
		case <-p.ready: // an earlier request of the process was cancelled
		default:
			close(p.ready)
		}
	}
	select {
	case h := <-p.events:
		h.ok <- p.writeEvent(w, r, h.inv)
	case <-r.Context().Done():
		p.kill(nil) // a runtime without an open request would never get an event
	}
}

func (p *process) writeEvent(w http.ResponseWriter, r *http.Request, inv *invocation) bool {
	if r.Context().Err() != nil {
		p.kill(nil)
		return false
	}
	deadline, ok := p.begin(inv)
	if !ok {
		return false
	}
	cfg := &p.f.cfg
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(inv.payload)))
	h.Set(headerRequestID, inv.id)
	h.Set(headerDeadline, strconv.FormatInt(deadline.UnixMilli(), 10))
	h.Set(headerARN, "arn:aws:lambda:"+cfg.Region+":"+accountID+":function:"+cfg.Name)
	h.Set(headerTrace, inv.trace)
	_, _ = w.Write(inv.payload) // if the write fails, the process ends, which fails the invocation
	return true
}

func (p *process) claim(w http.ResponseWriter, r *http.Request) *invocation {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cur == nil || p.cur.id != r.PathValue("id"):
		refuse(w, http.StatusBadRequest, "InvalidRequestID", "no invocation of that id is under way")
	case p.answered:
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the invocation was answered already")
	default:
		p.answered = true
		return p.cur
	}
	return nil
}

func (p *process) response(w http.ResponseWriter, r *http.Request) {
	if mode := r.Header.Get(headerMode); mode != "" && mode != "streaming" {
		refuse(w, http.StatusBadRequest, "InvalidResponseMode", headerMode+" may be streaming")
		return
	}
	inv := p.claim(w, r)
	if inv == nil {
		return
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, ResponseLimit+1))
	switch {
	case err != nil:
		p.failTruncated(inv)
		return
	case len(b) > ResponseLimit:
		inv.setResult(result{err: &FunctionError{
			"Function.ResponseSizeTooLarge",
			"Response payload size exceeded maximum allowed payload size (" + strconv.Itoa(ResponseLimit) + " bytes).",
		}})
		refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Exceeded maximum allowed payload size ("+
			strconv.Itoa(ResponseLimit)+" bytes).")
		return
	}
	if err := trailerError(r.Trailer); err != nil {
		inv.setResult(result{err: err})
	} else {
		inv.setResult(result{payload: b})
	}
	accept(w)
}

// exitTimeout bounds the wait for the end of a process whose response broke off. The machine may be busy.
const exitTimeout = 5 * time.Second

func (p *process) failTruncated(inv *invocation) {
	select {
	case <-p.exited:
		inv.setResult(result{err: p.err(inv.id)})
	case <-time.After(exitTimeout):
		inv.setResult(result{err: &FunctionError{
			"Runtime.TruncatedResponse", "the runtime did not send its whole answer",
		}})
	}
}

func trailerError(trailer http.Header) error {
	typ := trailer.Get(headerErrorType)
	if typ == "" {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(trailer.Get(headerErrorBody))
	if err != nil {
		b = nil
	}
	return parseError(b, typ)
}

func (p *process) error(w http.ResponseWriter, r *http.Request) {
	inv := p.claim(w, r)
	if inv == nil {
		return
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	if err != nil {
		p.failTruncated(inv)
		return
	}
	inv.setResult(result{err: parseError(b, r.Header.Get(headerErrorType))})
	accept(w)
}

func (p *process) initError(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBody)) // a partial description is used
	select {
	case <-p.ready:
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the runtime was initialised")
		return
	default:
	}
	p.mu.Lock()
	p.initErr = parseError(b, r.Header.Get(headerErrorType))
	p.mu.Unlock()
	accept(w)
}

func parseError(b []byte, typ string) *FunctionError {
	var e struct{ ErrorMessage, ErrorType string }
	if json.Unmarshal(b, &e) != nil {
		e.ErrorMessage = "the runtime gave no reason"
	}
	if e.ErrorType == "" {
		e.ErrorType = typ
	}
	if e.ErrorType == "" {
		e.ErrorType = "Runtime.Unknown"
	}
	return &FunctionError{e.ErrorType, e.ErrorMessage}
}

func accept(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"status":"OK"}`+"\n") // the runtime may be gone
}

func refuse(w http.ResponseWriter, code int, typ, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"errorType": typ, "errorMessage": message}) // the runtime may be gone
}
