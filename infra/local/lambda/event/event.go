// Package event converts HTTP requests into the events that AWS sends to functions, and their responses into HTTP
// responses. It has the limits and behaviour of three fronts: [ALB], [REST] and [HTTP]. It shares no code with
// shared/lambdahttp, so that neither can hide the other's mistakes.
//
// Its facts are from AWS's documentation, and from events that the voker project (github.com/hotsock/voker) captured.
package event

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Refusal is the error if a front itself responds to a request, with Code, or rejects a function's response.
type Refusal struct {
	Code int
	Why  string // for the operator of the front; clients see only the code
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d: %s", r.Code, r.Why) }

func refuse(code int, why string) *Refusal { return &Refusal{code, why} }

func target(r *http.Request) (path, query string, err error) {
	path, query, _ = strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") {
		return "", "", refuse(http.StatusBadRequest, "the request target is not a path")
	}
	return path, query, nil
}

type param struct{ key, value string }

// params splits a query. Keys without "=" have the value "", as in the fronts.
func params(query string) []param {
	var out []param
	for s := range strings.SplitSeq(query, "&") {
		if s == "" {
			continue
		}
		k, v, _ := strings.Cut(s, "=")
		out = append(out, param{k, v})
	}
	return out
}

func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body is too large")
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body broke off")
	case int64(len(b)) > limit:
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body is too large")
	}
	return b, nil
}

// encode returns a body as in an event. A body that is not UTF-8 is always base64, because JSON cannot contain it.
func encode(b []byte, text bool) (body string, base64Encoded bool) {
	if text && utf8.Valid(b) {
		return string(b), false
	}
	return base64.StdEncoding.EncodeToString(b), true
}

// forwarded returns the headers without those of the connection, and with those that every front adds about its client.
func forwarded(r *http.Request) http.Header {
	h := r.Header.Clone()
	h.Del("Transfer-Encoding")
	h.Set("Host", r.Host)
	if len(r.TransferEncoding) > 0 || r.ContentLength > 0 {
		h.Del("Content-Length") // the caller sets it after reading the body
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	h.Set("X-Forwarded-For", strings.Join(append(h["X-Forwarded-For"], host), ", "))
	proto, port := "http", "80"
	if r.TLS != nil {
		proto, port = "https", "443"
	}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, p, err := net.SplitHostPort(a.String()); err == nil {
			port = p
		}
	}
	h.Set("X-Forwarded-Proto", proto)
	h.Set("X-Forwarded-Port", port)
	id := TraceID()
	if incoming := h.Get("X-Amzn-Trace-Id"); incoming != "" {
		id = "Self=" + strings.TrimPrefix(id, "Root=") + ";" + incoming
	}
	h.Set("X-Amzn-Trace-Id", id)
	return h
}

// TraceID returns a new tracing header: the time and 96 random bits.
func TraceID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("Root=1-%08x-%s", time.Now().Unix(), hex.EncodeToString(b[:]))
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

type reply struct {
	status            int
	headers           map[string]string
	multiValueHeaders map[string][]string
	cookies           []string
	body              []byte
}

// decodeReply returns an error for a field with a wrong type. An ALB responds 502 even to "body": null.
func decodeReply(b []byte) (*reply, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(b, &doc); err != nil || doc == nil {
		return nil, errors.New("the answer is not a JSON object")
	}
	var (
		out    reply
		body   string
		base   bool
		phrase string
	)
	for name, to := range map[string]any{
		"statusCode": &out.status, "statusDescription": &phrase, "headers": &out.headers,
		"multiValueHeaders": &out.multiValueHeaders, "cookies": &out.cookies, "body": &body, "isBase64Encoded": &base,
	} {
		raw, ok := doc[name]
		if !ok {
			continue
		}
		if bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, to) != nil {
			return nil, fmt.Errorf("%s in the answer has a wrong type", name)
		}
	}
	if out.status < 200 || out.status > 599 {
		return nil, fmt.Errorf("the answer has status %d", out.status)
	}
	out.body = []byte(body)
	if base {
		var err error
		if out.body, err = base64.StdEncoding.DecodeString(body); err != nil {
			return nil, errors.New("the body of the answer is not base64")
		}
	}
	return &out, nil
}

// write writes the reply. The front sets hop-by-hop headers and the length itself.
func (p *reply) write(w http.ResponseWriter, r *http.Request) {
	h := p.header(w)
	if r.Method != http.MethodHead && p.status != http.StatusNoContent && p.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(p.body)))
	}
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(p.body) // the client may be gone
	}
}

func (p *reply) header(w http.ResponseWriter) http.Header {
	h := w.Header()
	for k, v := range p.headers {
		h.Set(k, v)
	}
	for k, vs := range p.multiValueHeaders {
		for _, v := range vs {
			h.Add(k, v)
		}
	}
	for _, c := range p.cookies {
		h.Add("Set-Cookie", c)
	}
	for _, k := range []string{"Connection", "Keep-Alive", "Transfer-Encoding", "Trailer", "Upgrade"} {
		h.Del(k)
	}
	if h.Get("Content-Type") == "" {
		h["Content-Type"] = nil // no front guesses the type
	}
	return h
}
