package lambdahttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is a response document of any kind.
type answer struct {
	StatusCode        int                 `json:"statusCode"`
	StatusDescription string              `json:"statusDescription"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Cookies           []string            `json:"cookies"`
	Body              string              `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`

	body string // decoded
}

func decode(t testing.TB, b []byte) answer {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var a answer
	if err := dec.Decode(&a); err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	a.body = a.Body
	if a.IsBase64Encoded {
		raw, err := base64.StdEncoding.DecodeString(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		a.body = string(raw)
	}
	return a
}

func statusOf(t testing.TB, a answer) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || s.Kind != "Status" || int(s.Code) != a.StatusCode {
		t.Fatalf("not a Status for %d: %q", a.StatusCode, a.body)
	}
	return s
}

func invoke(t testing.TB, f *Function, event string) answer {
	t.Helper()
	b, err := f.Invoke(t.Context(), payload(t, event))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, b)
}

func TestResponse(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Add("Warning", `299 - "a, b"`)
		h.Add("Warning", `299 - "c"`)
		h.Add("Set-Cookie", "a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT")
		h.Add("Set-Cookie", "b=2")
		h.Set("Connection", "close")
		h.Set("Transfer-Encoding", "chunked")
		h.Set("Trailer", "X-Sum")
		h.Set("X-Latin", "caf\xe9")
		h.Set("Content-Length", "7")
		w.WriteHeader(http.StatusEarlyHints) // not supported
		w.WriteHeader(http.StatusCreated)
		h.Set("X-Late", "1")
		w.WriteHeader(http.StatusTeapot) // too late
		_, _ = io.WriteString(w, "{\"λ\"}\n")
		h.Set(http.TrailerPrefix+"X-Sum", "1")
	}
	multi := map[string][]string{
		"Content-Type": {"application/json"},
		"Warning":      {`299 - "a, b"`, `299 - "c"`},
		"Set-Cookie":   {"a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT", "b=2"},
		"X-Latin":      {"caf\uFFFD"},
	}
	single := map[string]string{
		"Content-Type": "application/json", "Warning": `299 - "a, b", 299 - "c"`, "X-Latin": "caf\uFFFD",
	}
	singleWithCookie := maps.Clone(single)
	singleWithCookie["Set-Cookie"] = "b=2"
	const body = "{\"λ\"}\n"
	for event, want := range map[string]answer{
		"alb-multi":  {StatusCode: 201, StatusDescription: "201 Created", MultiValueHeaders: multi, Body: body, body: body},
		"alb-single": {StatusCode: 201, StatusDescription: "201 Created", Headers: singleWithCookie, Body: body, body: body},
		"rest":       {StatusCode: 201, MultiValueHeaders: multi, Body: body, body: body},
		"http":       {StatusCode: 201, Headers: single, Cookies: multi["Set-Cookie"], Body: body, body: body},
	} {
		t.Run(event, func(t *testing.T) {
			got := invoke(t, New(http.HandlerFunc(handler), Options{}), event)
			if d := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestLikeNetHTTP compares the writer with net/http's own server.
func TestLikeNetHTTP(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"nothing":        func(http.ResponseWriter, *http.Request) {},
		"empty write":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) },
		"sniffed html":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html></html>") },
		"sniffed binary": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0, 1, 2, 0xff}) },
		"unsniffed nil": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = w.Write([]byte("x"))
		},
		"unsniffed gzip": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("x"))
		},
		"sniffed, length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1")
			_, _ = w.Write([]byte("x"))
		},
		"no content": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			_, err := w.Write([]byte("x"))
			w.Header().Set("X", fmt.Sprint(err))
		},
		"not modified":   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"1"`); w.WriteHeader(304) },
		"error":          func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 404) },
		"unknown status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) },
		"second status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) },
		"over length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1")
			_, _ = w.Write([]byte("x"))
			_, _ = w.Write([]byte("y"))
		},
		"flush then write": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.Header().Set("X-Late", "1")
			_, _ = w.Write([]byte("<p>"))
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/bridge/x", http.StatusTemporaryRedirect)
		},
		"set-cookie": func(w http.ResponseWriter, _ *http.Request) { http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"}) },
	}
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for name, h := range handlers {
			t.Run(method+" "+name, func(t *testing.T) {
				srv := httptest.NewServer(h)
				defer srv.Close()
				req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				tr := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				for _, k := range []string{"Date", "Connection", "Content-Length"} {
					resp.Header.Del(k) // set by the front
				}

				b, err := New(h, Options{}).Invoke(t.Context(), albEvent(t, method, "/"))
				if err != nil {
					t.Fatal(err)
				}
				got := decode(t, b)
				if got.MultiValueHeaders == nil {
					t.Error("multiValueHeaders is missing, which an ALB answers with 502")
				}
				delete(got.MultiValueHeaders, "Content-Length")
				if got.StatusCode != resp.StatusCode || got.body != string(body) ||
					!cmp.Equal(map[string][]string(resp.Header), got.MultiValueHeaders) {
					t.Errorf("got %d %q %v\nwant %d %q %v", got.StatusCode, got.body, got.MultiValueHeaders, resp.StatusCode, body,
						resp.Header)
				}
			})
		}
	}
}

func albEvent(t testing.TB, method, path string) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"httpMethod": method, "path": path, "multiValueHeaders": map[string]any{"host": []string{"x"}},
		"requestContext": map[string]any{"elb": map[string]any{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBrokenAnswers: no incomplete response looks complete.
func TestBrokenAnswers(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer upstream.Close()
	u, _ := url.Parse(upstream.URL)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(pr *httputil.ProxyRequest) { pr.SetURL(u) },
		Transport: &http.Transport{DisableKeepAlives: true},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	tests := map[string]struct {
		handler    http.Handler
		wantCode   int
		wantReason metav1.StatusReason
		wantLog    bool
	}{
		"abort": {
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("x"))
				panic(http.ErrAbortHandler)
			}), 502, "ServiceUnavailable", false,
		},
		"upstream breaks": {proxy, 502, "ServiceUnavailable", false},
		"short": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = w.Write([]byte("x"))
		}), 502, "ServiceUnavailable", false},
		"upgrade": {
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }), 502, "ServiceUnavailable",
			false,
		},
		"panic": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			_, _ = w.Write([]byte("x"))
			panic("boom")
		}), 500, "InternalError", true},
		"nil dereference": {
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { var p *url.URL; _ = p.Host }), 500, "InternalError",
			true,
		},
		"bad status": {
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(42) }), 500, "InternalError", true,
		},
		"unanswered timeout": {
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), 504, "Timeout", false,
		},
	}
	for name, tt := range tests {
		for _, event := range []string{"alb-multi", "rest", "http"} {
			t.Run(name+" "+event, func(t *testing.T) {
				var log bytes.Buffer
				f := New(tt.handler, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if tt.wantCode == 504 {
					ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
				}
				defer cancel()
				b, err := f.Invoke(ctx, payload(t, event))
				if err != nil {
					t.Fatal(err)
				}
				got := decode(t, b)
				if s := statusOf(t, got); got.StatusCode != tt.wantCode || s.Reason != tt.wantReason {
					t.Errorf("got %d %s, want %d %s", got.StatusCode, s.Reason, tt.wantCode, tt.wantReason)
				}
				if logged := strings.Contains(log.String(), "stack="); logged != tt.wantLog {
					t.Errorf("log is %q", log.String())
				}
				if strings.Contains(log.String(), "Bearer") || strings.Contains(string(b), "boom") {
					t.Errorf("a header is in the log, or the panic in the answer: %s %s", log.String(), b)
				}
			})
		}
	}
}

// invokeWith returns the response of a handler that writes body in chunks. It also returns the handler's last write
// error, and the cause of the end of its context. The limit applies to the response.
func invokeWith(t *testing.T, body []byte, limit, chunk int, encoding string, declare bool) (
	b []byte, writeErr, cause error,
) {
	t.Helper()
	f := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "x/y")
		if encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		if declare {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		for rest := body; len(rest) > 0 && writeErr == nil; rest = rest[min(chunk, len(rest)):] {
			_, writeErr = w.Write(rest[:min(chunk, len(rest))])
		}
		cause = context.Cause(r.Context())
	}), Options{MaxResponse: limit, Overflow: func(r *http.Request, status int, h http.Header) http.Handler {
		if status != 200 || h.Get("Content-Type") != "x/y" || r.Context().Err() != nil {
			t.Errorf("overflow of %d %v, context %v", status, h, r.Context().Err())
		}
		return http.RedirectHandler("/bridge/x", http.StatusTemporaryRedirect)
	}})
	b, err := f.Invoke(t.Context(), albEvent(t, "GET", "/x"))
	if err != nil {
		t.Fatal(err)
	}
	return b, writeErr, cause
}

// TestLimit: for bodies around the limit, a response may use the last byte, but not one more. Otherwise the handler is
// stopped.
func TestLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	const limit = 800
	makers := map[string]func(n int) []byte{
		"ascii":   func(n int) []byte { return bytes.Repeat([]byte("a"), n) },
		"quotes":  func(n int) []byte { return bytes.Repeat([]byte(`"`), n) },
		"json":    func(n int) []byte { return bytes.Repeat([]byte(`{"a":"b"},`), n/10+1)[:n] },
		"runes":   func(n int) []byte { return bytes.Repeat([]byte("世"), n/3+1)[:n] },
		"binary":  func(n int) []byte { return bytes.Repeat([]byte{0xff}, n) },
		"mixed":   func(n int) []byte { return append(bytes.Repeat([]byte("a"), n-1), 0xff) },
		"control": func(n int) []byte { return bytes.Repeat([]byte{1}, n) },
	}
	for name, mk := range makers {
		for _, encoding := range []string{"", "gzip"} {
			for _, declare := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %q %t", name, encoding, declare), func(t *testing.T) {
					used, overflowed, chunk := 0, false, 1+rand.IntN(200)
					for n := limit / 2; n < limit+20; n++ {
						body := mk(n)
						b, writeErr, cause := invokeWith(t, body, limit, chunk, encoding, declare)
						if len(b) > limit {
							t.Fatalf("%d bytes became %d", n, len(b))
						}
						switch a := decode(t, b); {
						case a.StatusCode == 200 && a.body == string(body):
							// an incomplete rune counts as binary, which is larger
							if writeErr != nil || cause != nil || overflowed && name != "runes" {
								t.Fatalf("%d bytes fit, but %v, %v; fewer did not: %t", n, writeErr, cause, overflowed)
							}
							used = max(used, len(b))
						case a.StatusCode == 307 && a.MultiValueHeaders["Location"][0] == "/bridge/x":
							overflowed = true
							// An incomplete last rune is found only at the end, when only Overflow is called.
							if name != "runes" && (!errors.Is(writeErr, ErrTooLarge) || !errors.Is(cause, ErrTooLarge)) {
								t.Fatalf("%d bytes do not fit, but %v, %v", n, writeErr, cause)
							}
						default:
							t.Fatalf("%d bytes: %.200s", n, b)
						}
					}
					if used < limit-6 || !overflowed { // base64 grows by four; "true" is shorter than "false"
						t.Errorf("the largest answer was of %d bytes", used)
					}
				})
			}
		}
	}
}

// TestDeclaredTooLarge: a response with a declared length above the limit is never read.
func TestDeclaredTooLarge(t *testing.T) {
	for _, tt := range []struct {
		method, length, encoding string
		wantOverflow             bool
	}{
		{"GET", "999999", "", true}, // no space for the envelope
		{"GET", "99999999999", "", true},
		{"GET", "760000", "gzip", true},
		{"GET", "700000", "gzip", false},
		{"GET", "500000", "", false},
		{"HEAD", "999999999", "", false},
	} {
		t.Run(tt.method+" "+tt.length, func(t *testing.T) {
			read := false
			overflowed := false
			f := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", tt.length)
				w.Header().Set("Content-Encoding", tt.encoding)
				w.WriteHeader(200)
				read = r.Context().Err() == nil
			}), Options{Overflow: func(*http.Request, int, http.Header) http.Handler { overflowed = true; return nil }})
			b, err := f.Invoke(t.Context(), albEvent(t, tt.method, "/"))
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, b); overflowed != tt.wantOverflow || read == tt.wantOverflow ||
				overflowed != (got.StatusCode == 413) {
				t.Errorf("overflow %t, went on %t: %.200s", overflowed, read, b)
			}
		})
	}
}

// TestOverflowFails: the same rules apply to a response of Overflow.
func TestOverflowFails(t *testing.T) {
	big := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(make([]byte, 2<<20)); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	for name, tt := range map[string]struct {
		overflow http.Handler
		want     int
	}{
		"too large as well": {big, 413},
		"panics":            {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(1) }), 500},
		"none":              {nil, 413},
	} {
		t.Run(name, func(t *testing.T) {
			f := New(big, Options{
				Log:      slog.New(slog.DiscardHandler),
				Overflow: func(*http.Request, int, http.Header) http.Handler { return tt.overflow },
			})
			if got := invoke(t, f, "alb-multi"); got.StatusCode != tt.want || statusOf(t, got).Status != "Failure" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestFrontLimits: each front has its own limit, which Options cannot raise.
func TestFrontLimits(t *testing.T) {
	for event, limit := range map[string]int{"alb-multi": ALBLimit, "rest": LambdaLimit, "http": LambdaLimit} {
		for _, over := range []bool{false, true} {
			t.Run(fmt.Sprint(event, over), func(t *testing.T) {
				f := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "x/y")
					n := limit - 500
					if over {
						n = limit
					}
					_, _ = w.Write(bytes.Repeat([]byte("a"), n))
				}), Options{MaxResponse: 100 << 20})
				want := map[bool]int{false: 200, true: 413}[over]
				if got := invoke(t, f, event); got.StatusCode != want {
					t.Errorf("got %d, want %d", got.StatusCode, want)
				}
			})
		}
	}
}

func TestResponseController(t *testing.T) {
	f := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(struct{ unwrapper }{unwrapper{w}})
		if err := rc.Flush(); err != nil {
			t.Error("flush:", err)
		}
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error("full duplex:", err)
		}
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Error("hijack:", err)
		}
		if err := rc.SetWriteDeadline(time.Now()); !errors.Is(err, http.ErrNotSupported) {
			t.Error("deadline:", err)
		}
	}), Options{})
	if got := invoke(t, f, "alb-multi"); got.StatusCode != 200 {
		t.Errorf("got %d", got.StatusCode)
	}
}

type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func TestDeadline(t *testing.T) {
	for name, tt := range map[string]struct{ given, margin, want time.Duration }{
		"default":        {30 * time.Second, 0, 29500 * time.Millisecond},
		"own":            {30 * time.Second, 2 * time.Second, 28 * time.Second},
		"little is left": {time.Second, 0, 750 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			end := time.Now().Add(tt.given)
			ctx, cancel := context.WithDeadline(t.Context(), end)
			defer cancel()
			var got, invocation time.Time
			f := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got, _ = r.Context().Deadline()
				ev, _ := EventFrom(r.Context())
				invocation = ev.Deadline
			}), Options{Margin: tt.margin})
			if _, err := f.Invoke(ctx, payload(t, "alb-multi")); err != nil {
				t.Fatal(err)
			}
			if !invocation.Equal(end) {
				t.Errorf("the event has the deadline %v, want %v", invocation, end)
			}
			want := end.Add(tt.want - tt.given)
			if got.After(end) || got.Before(want.Add(-time.Millisecond)) || got.After(want.Add(time.Second)) {
				t.Errorf("the context ends %v before the invocation, want %v", end.Sub(got), tt.given-tt.want)
			}
		})
	}
	f := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, ok := r.Context().Deadline(); ok {
			t.Error("a deadline from nowhere:", d)
		}
	}), Options{})
	if _, err := f.Invoke(context.Background(), payload(t, "alb-multi")); err != nil {
		t.Fatal(err)
	}
}

// TestWriteAfterReturn: a goroutine that outlives its handler cannot change a response.
func TestWriteAfterReturn(t *testing.T) {
	var late http.ResponseWriter
	f := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { late = w; _, _ = w.Write([]byte("a")) }),
		Options{})
	got := invoke(t, f, "alb-multi")
	if n, err := late.Write([]byte("b")); n != 0 || err == nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	if got.body != "a" {
		t.Errorf("got %q", got.body)
	}
}
