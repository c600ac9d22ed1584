package event_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
	"github.com/clusterpass/clusterpass/shared/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

type front interface {
	Event(*http.Request) ([]byte, error)
	Answer(http.ResponseWriter, *http.Request, []byte) error
	Refuse(http.ResponseWriter, int)
}

func serve(t testing.TB, f front, handler http.Handler) *httptest.Server {
	t.Helper()
	fn := lambdahttp.New(handler, lambdahttp.Options{Log: slog.New(slog.DiscardHandler)})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f == nil {
			handler.ServeHTTP(w, r)
			return
		}
		payload, err := f.Event(r)
		if err == nil {
			var answer []byte
			if answer, err = fn.Invoke(r.Context(), payload); err == nil {
				err = f.Answer(w, r, answer)
			}
		}
		var refusal *event.Refusal
		if errors.As(err, &refusal) {
			f.Refuse(w, refusal.Code)
		} else if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

type request struct {
	Method, URI string
	Header      http.Header
	Body        []byte
}

type response struct {
	Status int
	Header http.Header
	Body   []byte
}

// do sends a request byte for byte. The client of net/http would clean the URL.
func do(t testing.TB, addr string, req request) response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n", req.Method, req.URI)
	_ = req.Header.Write(&b)
	if len(req.Body) > 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(req.Body))
	}
	b.WriteString("\r\n")
	b.Write(req.Body)
	go func() { _, _ = conn.Write(b.Bytes()) }() // a server may respond before it has read everything
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: req.Method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, body}
}

type recorder struct {
	got  request
	give response
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	rec.got = request{r.Method, r.RequestURI, r.Header, body}
	maps.Copy(w.Header(), rec.give.Header)
	w.WriteHeader(rec.give.Status)
	_, _ = w.Write(rec.give.Body)
}

// Clients and handlers must see the same behind each front, apart from the front's known changes.
func TestRoundTrip(t *testing.T) {
	fronts := map[string]front{
		"alb":        event.ALB{TargetGroupARN: "arn:x"},
		"alb single": event.ALB{SingleValue: true},
		"rest":       event.REST{Stage: "prod", Domain: "a.execute-api.eu-west-1.amazonaws.com"},
		"http":       event.HTTP{Domain: "a.execute-api.eu-west-1.amazonaws.com"},
		"http stage": event.HTTP{Stage: "prod", Domain: "a.execute-api.eu-west-1.amazonaws.com"},
	}
	for name, f := range fronts {
		t.Run(name, func(t *testing.T) {
			rec, direct := &recorder{}, &recorder{}
			srv, plain := serve(t, f, rec), serve(t, nil, direct)
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			for i := range 100 {
				req, resp := randomRequest(rng, name), randomResponse(rng, name)
				rec.give, direct.give = resp, resp
				got := do(t, srv.Listener.Addr().String(), req)
				want := do(t, plain.Listener.Addr().String(), req)
				for _, h := range []http.Header{rec.got.Header, direct.got.Header, got.Header, want.Header} {
					for k := range h {
						if strings.HasPrefix(k, "X-Forwarded-") || k == "X-Amzn-Trace-Id" || k == "Date" || k == "Connection" ||
							k == "Content-Length" {
							delete(h, k)
						}
					}
				}
				normalise(&rec.got, name)
				normalise(&direct.got, name)
				if d := cmp.Diff(direct.got, rec.got); d != "" {
					t.Fatalf("seed %d, call %d: the request changed:\n%s", seed, i, d)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("seed %d, call %d: the answer changed:\n%s", seed, i, d)
				}
			}
		})
	}
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func randomRequest(rng *rand.Rand, front string) request {
	var uri strings.Builder
	pieces := []string{"a", "api", "v1", ":", "@", "~x", "$y", "%E4%B8%96", "(b)", "!", "*", "'", "+", ",",
		";p=1", "=", "."}
	if !strings.HasPrefix(front, "http") { // an HTTP API cannot convey these
		pieces = append(pieces, "%2F", "%2f", "%3A", "%3F", "%25", "%20", "%23", "%00", "/", "//")
	}
	for range 1 + rng.IntN(5) {
		uri.WriteString("/" + pick(rng, pieces...))
	}
	if rng.IntN(3) == 0 {
		uri.WriteString("/")
	}
	sep := "?"
	for range rng.IntN(6) {
		uri.WriteString(sep + pick(rng, "watch", "labelSelector", "a%2Fb", "fieldManager", "x%5B%5D") + "=" +
			pick(rng, "", "1", "a%3Db%2Cc", "a+b", "a%2Bb", "a%20b", "%E4%B8%96", "x=y", "/p?q", "%25"))
		sep = "&"
	}
	h := http.Header{}
	for range rng.IntN(5) {
		h.Add(pick(rng, "Accept", "Warning", "X-A", "Impersonate-Group"),
			pick(rng, "a", "a, b", "a;q=0.1,b", "", `"q"`, "a\tb"))
	}
	if rng.IntN(3) == 0 {
		h.Set("Cookie", "a=1; b=2")
	}
	req := request{Method: pick(rng, "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"),
		URI: uri.String(), Header: h}
	if req.Method != "GET" && req.Method != "HEAD" {
		req.Body = randomBody(rng)
		h.Set("Content-Type", pick(rng, "application/json", "application/vnd.kubernetes.protobuf",
			"text/plain; charset=utf-8", "application/apply-patch+yaml"))
	}
	return req
}

func randomBody(rng *rand.Rand) []byte {
	switch rng.IntN(4) {
	case 0:
		return nil
	case 1:
		return []byte(`{"a":"<b>&λ","c":"\u0000\n"}` + "\n")
	}
	b := make([]byte, rng.IntN(3000))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func randomResponse(rng *rand.Rand, front string) response {
	h := http.Header{"Content-Type": {pick(rng, "application/json", "application/vnd.kubernetes.protobuf")}}
	for range rng.IntN(4) {
		k := pick(rng, "Warning", "X-B", "Etag")
		if front == "alb single" || strings.HasPrefix(front, "http") {
			h.Set(k, "299 - a, b") // several values become one
		} else {
			h.Add(k, pick(rng, "299 - a, b", "", "x"))
		}
	}
	if rng.IntN(2) == 0 {
		h.Add("Set-Cookie", "a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT")
		if front != "alb single" {
			h.Add("Set-Cookie", "b=2")
		}
	}
	resp := response{Status: pick(rng, 200, 201, 307, 404, 409, 422, 500), Header: h, Body: randomBody(rng)}
	if rng.IntN(4) == 0 {
		h.Set("Content-Encoding", "gzip")
	}
	return resp
}

func normalise(r *request, front string) {
	path, query, _ := strings.Cut(r.URI, "?")
	switch front {
	case "rest":
		q, _ := url.ParseQuery(query) // same meaning
		query = q.Encode()
	case "alb single":
		last := map[string]string{}
		for _, p := range strings.Split(query, "&") {
			k, v, _ := strings.Cut(p, "=")
			last[k] = v
		}
		query = fmt.Sprint(last)
		for k, v := range r.Header {
			r.Header[k] = v[len(v)-1:]
		}
	case "alb":
		keys := map[string][]string{}
		for _, p := range strings.Split(query, "&") {
			k, v, _ := strings.Cut(p, "=")
			keys[k] = append(keys[k], v)
		}
		query = fmt.Sprint(slices.Sorted(maps.Keys(keys)), keys)
	default:
		u := &url.URL{}
		u.Path, _ = url.PathUnescape(path)
		path = u.EscapedPath()
		for k, v := range r.Header {
			r.Header[k] = []string{strings.Join(v, ",")}
		}
	}
	r.URI = path + "?" + query
	if len(r.Body) == 0 {
		r.Body = nil
	}
}

func TestALBEvent(t *testing.T) {
	r := httptest.NewRequest("POST", "/a%2Fb?k=1&k=%202&e&=x", strings.NewReader(`{"a":"<"}`))
	r.RequestURI = "/a%2Fb?k=1&k=%202&e&=x"
	r.RemoteAddr = "[2001:db8::1]:4711"
	r.Header = http.Header{
		"Content-Type": {"application/json; charset=utf-8"}, "X-Forwarded-For": {"1.2.3.4", "5.6.7.8"},
		"X-Forwarded-Proto": {"gopher"},
		"X-A":               {"1", "2"}, "X-Amzn-Trace-Id": {"Root=1-2-3"}, "Content-Length": {"9"},
	}
	b, err := event.ALB{TargetGroupARN: "arn:x"}.Event(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	trace := got["multiValueHeaders"].(map[string]any)["x-amzn-trace-id"].([]any)[0].(string)
	if !strings.HasPrefix(trace, "Self=1-") || !strings.HasSuffix(trace, ";Root=1-2-3") {
		t.Errorf("trace id %s", trace)
	}
	delete(got["multiValueHeaders"].(map[string]any), "x-amzn-trace-id")
	list := func(s ...any) []any { return s }
	want := map[string]any{
		"requestContext":                  map[string]any{"elb": map[string]any{"targetGroupArn": "arn:x"}},
		"httpMethod":                      "POST",
		"path":                            "/a%2Fb",
		"multiValueQueryStringParameters": map[string]any{"k": list("1", "%202"), "e": list(""), "": list("x")},
		"multiValueHeaders": map[string]any{
			"content-type": list("application/json; charset=utf-8"), "content-length": list("9"), "host": list("example.com"),
			"x-a": list("1", "2"), "x-forwarded-for": list("1.2.3.4, 5.6.7.8, 2001:db8::1"), "x-forwarded-port": list("80"),
			"x-forwarded-proto": list("http"),
		},
		"body": `{"a":"<"}`, "isBase64Encoded": false,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if bytes.Contains(b, []byte(`\u003c`)) {
		t.Error("the event has HTML escapes")
	}
}

func TestALBRefusals(t *testing.T) {
	long := strings.Repeat("x", 17<<10)
	fill := http.Header{}
	for i := range 5 {
		fill.Set(fmt.Sprint("X-", i), long[:15<<10])
	}
	for name, tt := range map[string]struct {
		req  request
		want int
	}{
		"upgrade":        {request{"GET", "/", http.Header{"Upgrade": {"websocket"}}, nil}, 400},
		"long line":      {request{"GET", "/?" + long, nil, nil}, 414},
		"long header":    {request{"GET", "/", http.Header{"X-A": {long}}, nil}, 400},
		"many headers":   {request{"GET", "/", fill, nil}, 400},
		"star":           {request{"GET", "*", nil, nil}, 400},
		"body too large": {request{"POST", "/", nil, make([]byte, event.ALBRequestBody+1)}, 413},
		"largest body":   {request{"POST", "/", nil, make([]byte, event.ALBRequestBody)}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			called := false
			srv := serve(t, event.ALB{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				called = len(b) == len(tt.req.Body)
			}))
			got := do(t, srv.Listener.Addr().String(), tt.req)
			if got.Status != tt.want || called != (tt.want == 200) {
				t.Errorf("got %d, the handler was called: %t", got.Status, called)
			}
			if tt.want != 200 && (got.Header.Get("Server") != "awselb/2.0" || !bytes.Contains(got.Body, []byte("<center>"))) {
				t.Errorf("not an ALB's page: %v %s", got.Header, got.Body)
			}
		})
	}
}

func TestALBAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		single bool
		want   response // Status 0: refused with 502
	}{
		"full": {
			answer: `{"statusCode":201,"statusDescription":"201 Created","isBase64Encoded":true,
"multiValueHeaders":{"X-A":["1","2"],"Connection":["x"],"Content-Length":["9"]},"body":"AAE="}`,
			want: response{201, http.Header{"X-A": {"1", "2"}, "Content-Length": {"2"}}, []byte{0, 1}}},
		"only a status": {answer: `{"statusCode":204}`, want: response{204, http.Header{}, []byte{}}},
		"single": {answer: `{"statusCode":200,"headers":{"x-a":"1"},"body":"x"}`, single: true,
			want: response{200, http.Header{"X-A": {"1"}, "Content-Length": {"1"}}, []byte("x")}},
		"headers of other mode": {answer: `{"statusCode":200,"headers":{"x-a":"1"},"body":"x"}`,
			want: response{200, http.Header{"Content-Length": {"1"}}, []byte("x")}},
		"empty":            {answer: ``},
		"null":             {answer: `null`},
		"text":             {answer: `"hello"`},
		"error":            {answer: `{"errorMessage":"x","errorType":"y"}`},
		"status text":      {answer: `{"statusCode":"200"}`},
		"status 101":       {answer: `{"statusCode":101}`},
		"null body":        {answer: `{"statusCode":200,"body":null}`},
		"null headers":     {answer: `{"statusCode":200,"headers":null,"multiValueHeaders":{}}`},
		"null description": {answer: `{"statusCode":200,"statusDescription":null}`},
		"number header":    {answer: `{"statusCode":200,"multiValueHeaders":{"content-length":[1]}}`},
		"not base64":       {answer: `{"statusCode":200,"isBase64Encoded":true,"body":"%"}`},
		"too large":        {answer: `{"statusCode":200,"body":"` + strings.Repeat("x", event.ALBResponseJSON) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			err := event.ALB{SingleValue: tt.single}.Answer(rec, httptest.NewRequest("GET", "/", nil), []byte(tt.answer))
			var refusal *event.Refusal
			if tt.want.Status == 0 {
				if !errors.As(err, &refusal) || refusal.Code != 502 || rec.Body.Len() > 0 {
					t.Errorf("got %v and %q", err, rec.Body)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rec.Result().Header.Del("Content-Type")
			h := rec.Header()
			delete(h, "Content-Type")
			if d := cmp.Diff(tt.want, response{rec.Code, h, rec.Body.Bytes()},
				cmp.Transformer("empty", func(b []byte) string { return string(b) })); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestHTTPPaths compares the emulated HTTP API with observations of the real one.
func TestHTTPPaths(t *testing.T) {
	for sent, want := range map[string]string{
		"/capture/space%20value":     "/capture/space value",
		"/capture/question%3Fvalue":  "/capture/question",
		"/capture/hash%23value":      "/capture/hash#value",
		"/capture/slash%2Fvalue":     "/capture/slash/value",
		"/capture/literal%252Fvalue": "/capture/literal/value",
		"/capture/literal%2525value": "/capture/literal%value",
		"/capture/unicode-%CE%BB":    "/capture/unicode-λ",
		"/capture/percent%25done":    "", // refused
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RequestURI = sent
		b, err := event.HTTP{}.Event(r)
		var refusal *event.Refusal
		if want == "" {
			if !errors.As(err, &refusal) || refusal.Code != 400 {
				t.Errorf("%s: got %v", sent, err)
			}
			continue
		}
		var got struct{ RawPath string }
		if err != nil || json.Unmarshal(b, &got) != nil || got.RawPath != want {
			t.Errorf("%s: got %q (%v), want %q", sent, got.RawPath, err, want)
		}
	}
}

func FuzzALBAnswer(f *testing.F) {
	f.Add([]byte(`{"statusCode":200,"multiValueHeaders":{"a":["b"]},"body":"x"}`), false)
	f.Add([]byte(`{"statusCode":200,"headers":{"a":"b"},"isBase64Encoded":true,"body":"AAE="}`), true)
	f.Fuzz(func(t *testing.T, b []byte, single bool) {
		rec := httptest.NewRecorder()
		err := event.ALB{SingleValue: single}.Answer(rec, httptest.NewRequest("GET", "/", nil), b)
		var refusal *event.Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.Code != 502 || rec.Body.Len() > 0) {
			t.Errorf("%v after %d bytes", err, rec.Body.Len())
		}
	})
}
