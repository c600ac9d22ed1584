package mototest

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Front is a proxy in front of moto, with behaviour of AWS that moto lacks. It is safe for concurrent use.
//
// A DynamoDB transaction is cancelled with TransactionConflict while another one is running. Calls of Secrets Manager
// run one after the other, since moto might otherwise create one secret twice.
type Front struct {
	URL   string
	moto  http.Handler
	close func()

	mu       sync.Mutex
	calls    map[string]int // by operation, by service, and in total by ""
	refusals int            // number of calls that are going to be refused
	refusal  string         // the code of their error
	lost     map[string]int
	stale    map[string]answer // responses to queries, by request body
	lagging  int
	conflict int
	done     map[string]answer // by ClientRequestToken
	running  string            // the ClientRequestToken of the running transaction
	ended    chan struct{}     // closed when that has ended; nil if there is none

	table   sync.RWMutex // moto exposes incomplete transactions
	secrets sync.Mutex
}

type answer struct {
	status int
	body   []byte
}

// NewFront starts a Front for the moto at backend. It is closed with the test.
func NewFront(t *testing.T, backend string) *Front {
	t.Helper()
	f, err := StartFront(backend)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// StartFront starts a Front for the moto at backend. The caller closes it.
func StartFront(backend string) (*Front, error) {
	u, err := url.Parse(backend)
	if err != nil {
		return nil, err
	}
	f := &Front{calls: map[string]int{}, lost: map[string]int{}, done: map[string]answer{}, stale: map[string]answer{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	proxy := &httputil.ReverseProxy{
		ErrorLog:  log.New(io.Discard, "", 0), // clients that have gone
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host },
	}
	f.moto = proxy
	srv := httptest.NewServer(f)
	f.URL, f.close = srv.URL, func() { srv.Close(); transport.CloseIdleConnections() }
	return f, nil
}

// Close stops the Front, but not moto.
func (f *Front) Close() { f.close() }

// Deny refuses all further calls for lack of permission.
func (f *Front) Deny() { f.Refuse("AccessDeniedException", int(^uint(0)>>1)) }

// Throttle refuses the next n calls as too many.
func (f *Front) Throttle(n int) { f.Refuse("ThrottlingException", n) }

// Refuse responds to the next n calls with an error code. An InternalServerError has status 500.
func (f *Front) Refuse(code string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusals, f.refusal = n, code
}

// Lose forwards the next n calls of operation to moto and discards the responses.
func (f *Front) Lose(operation string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost[operation] = n
}

// Lag responds to the next n Query calls with the previous responses, as if a query saw the state before a transaction.
func (f *Front) Lag(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lagging = n
}

// Conflict cancels the next n transactions as if others were running.
func (f *Front) Conflict(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conflict = n
}

// Services that Calls distinguishes.
const (
	SecretsManager = "secretsmanager"
	DynamoDB       = "DynamoDB_20120810"
)

// Calls returns the number of calls of an operation or a service, including refused ones. "" means all.
func (f *Front) Calls(of string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[of]
}

// ServeHTTP implements http.Handler, for tests with their own listener.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if code := f.count(service, op); code != "" {
		refuse(w, code)
		return
	}
	var a answer
	switch {
	case op == "TransactWriteItems":
		a = f.transact(r, body)
	case service == DynamoDB:
		a = locked(f.table.RLocker(), f.moto, r)
		if op == "Query" {
			a = f.lag(string(body), a)
		}
	case service == SecretsManager:
		a = locked(&f.secrets, f.moto, r)
	default:
		a = record(f.moto, r)
	}
	if f.isLost(op) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(a.body)), 10))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

func (f *Front) count(service, op string) (refusal string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range []string{service, op, ""} {
		f.calls[of]++
	}
	if f.refusals > 0 {
		f.refusals--
		return f.refusal
	}
	return ""
}

func (f *Front) lag(query string, a answer) answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.stale[query]; ok && f.lagging > 0 {
		f.lagging--
		return old
	}
	f.stale[query] = a
	return a
}

func (f *Front) isLost(op string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost[op]--
	return f.lost[op] >= 0
}

func (f *Front) transact(r *http.Request, body []byte) answer {
	var in struct {
		ClientRequestToken string
		TransactItems      []json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return answer{http.StatusBadRequest, []byte(`{"__type":"SerializationException"}`)}
	}
	if f.isConflict() {
		return conflictOf(len(in.TransactItems))
	}
	for token := in.ClientRequestToken; ; {
		f.mu.Lock()
		a, done := f.done[token]
		running, ended := f.running, f.ended
		if !done && ended == nil {
			f.running, f.ended = token, make(chan struct{})
		}
		f.mu.Unlock()
		switch {
		case done:
			return a
		case ended == nil:
			return f.alone(r, token)
		case running != token:
			return conflictOf(len(in.TransactItems))
		}
		<-ended // this transaction was sent again
	}
}

func (f *Front) alone(r *http.Request, token string) (a answer) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if a.status == http.StatusOK {
			f.done[token] = a
		}
		close(f.ended)
		f.ended = nil
	}()
	return locked(&f.table, f.moto, r)
}

func (f *Front) isConflict() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conflict--
	return f.conflict >= 0
}

func conflictOf(items int) answer {
	reasons := make([]map[string]string, items)
	for i := range reasons {
		reasons[i] = map[string]string{"Code": "None"}
	}
	reasons[0] = map[string]string{"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
	b, _ := json.Marshal(map[string]any{ // a map of strings cannot fail
		"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "CancellationReasons": reasons,
		"Message": "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict]",
	})
	return answer{http.StatusBadRequest, b}
}

// locked continues if the client has gone, so that the next call never sees an incomplete result.
func locked(l sync.Locker, h http.Handler, r *http.Request) answer {
	l.Lock()
	defer l.Unlock()
	return record(h, r.WithContext(context.WithoutCancel(r.Context())))
}

func record(h http.Handler, r *http.Request) answer {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return answer{rec.Code, rec.Body.Bytes()}
}

func refuse(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	status := http.StatusBadRequest
	if code == "InternalServerError" {
		status = http.StatusInternalServerError
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": "refused by the test"})
}
