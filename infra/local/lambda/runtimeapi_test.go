package lambda

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func runtimeOf(t *testing.T) (*process, *Function, *httptest.Server) {
	t.Helper()
	f := &Function{cfg: Config{Name: "f", Region: "eu-west-1", Timeout: time.Minute}, all: make(map[*process]struct{})}
	p := &process{f: f, events: make(chan handover), ready: make(chan struct{}), exited: make(chan struct{})}
	f.all[p] = struct{}{}
	srv := httptest.NewServer(p.runtimeAPI())
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		if p.deadline != nil {
			p.deadline.Stop()
		}
	})
	return p, f, srv
}

func send(t *testing.T, srv *httptest.Server, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+"/2018-06-01/runtime/"+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func sendEvent(t *testing.T, p *process, srv *httptest.Server, id string) *invocation {
	t.Helper()
	inv := &invocation{id: id, trace: "Root=1-2-3", payload: []byte(`{"a":1}`), result: make(chan result, 1),
		finished: make(chan struct{})}
	offered := make(chan bool)
	go func() { offered <- p.offer(inv) }()
	resp, body := send(t, srv, "GET", "invocation/next", "")
	if !<-offered {
		t.Fatal("the event was not taken")
	}
	if resp.StatusCode != 200 || body != `{"a":1}` {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	for k, want := range map[string]string{
		"Lambda-Runtime-Aws-Request-Id": id, "Lambda-Runtime-Trace-Id": "Root=1-2-3", "Content-Type": "application/json",
		"Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-west-1:123456789012:function:f",
	} {
		if got := resp.Header.Get(k); got != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
	var ms int64
	if _, err := fmt.Sscan(resp.Header.Get("Lambda-Runtime-Deadline-Ms"), &ms); err != nil ||
		time.Until(time.UnixMilli(ms)) > time.Minute {
		t.Errorf("deadline %s", resp.Header.Get("Lambda-Runtime-Deadline-Ms"))
	}
	return inv
}

func TestRuntimeAPI(t *testing.T) {
	p, f, srv := runtimeOf(t)
	want := func(what string, code int, resp *http.Response, body string) {
		t.Helper()
		if resp.StatusCode != code {
			t.Errorf("%s: got %d %s, want %d", what, resp.StatusCode, body, code)
		}
	}
	check := func(what string, code int, method, path, body string, header ...string) {
		t.Helper()
		resp, b := send(t, srv, method, path, body, header...)
		want(what, code, resp, b)
	}
	check("a response to nothing", 400, "POST", "invocation/x/response", "")
	check("an unknown path", 404, "GET", "invocation/other", "")
	check("a wrong method", 405, "POST", "invocation/next", "")
	check("an init error", 202, "POST", "init/error", `{"errorMessage":"m","errorType":"T"}`)
	if p.initErr == nil || p.initErr.Error() != "T: m" {
		t.Errorf("init error %v", p.initErr)
	}

	one := sendEvent(t, p, srv, "one")
	check("an init error too late", 403, "POST", "init/error", "")
	check("a next without an answer", 403, "GET", "invocation/next", "")
	check("a response to another", 400, "POST", "invocation/two/response", "x")
	check("a wrong mode", 400, "POST", "invocation/one/response", "x", "Lambda-Runtime-Function-Response-Mode", "fast")
	check("the response", 202, "POST", "invocation/one/response", "answer")
	check("a second response", 403, "POST", "invocation/one/response", "x")
	check("an error after the response", 403, "POST", "invocation/one/error", "x")
	if r := <-one.result; string(r.payload) != "answer" || r.err != nil {
		t.Errorf("result %s, %v", r.payload, r.err)
	}
	select {
	case <-one.finished:
		t.Error("the invocation is over before the runtime asked for the next")
	default:
	}

	two := sendEvent(t, p, srv, "two")
	<-one.finished
	if len(f.idle) != 1 || f.idle[0] != p || p.served != 1 {
		t.Errorf("idle %v after %d", f.idle, p.served)
	}
	check("an error", 202, "POST", "invocation/two/error", `{"errorMessage":"m","errorType":"T","stackTrace":[]}`)
	if r := <-two.result; r.err == nil || r.err.Error() != "T: m" {
		t.Errorf("result %v", r.err)
	}

	three := sendEvent(t, p, srv, "three")
	check("an error without words", 202, "POST", "invocation/three/error", "oops", "Lambda-Runtime-Function-Error-Type",
		"Function.Oops")
	if r := <-three.result; r.err == nil || r.err.Error() != "Function.Oops: the runtime gave no reason" {
		t.Errorf("result %v", r.err)
	}

	four := sendEvent(t, p, srv, "four")
	check("a response that is too large", 413, "POST", "invocation/four/response", strings.Repeat("x", ResponseLimit+1))
	if r := <-four.result; r.err == nil || !strings.HasPrefix(r.err.Error(), "Function.ResponseSizeTooLarge") {
		t.Errorf("result %v", r.err)
	}

	// While one request for an event is open, a second one is an error.
	ctx, cancel := context.WithCancel(t.Context())
	open := make(chan struct{})
	go func() {
		defer close(open)
		req, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/2018-06-01/runtime/invocation/next", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := srv.Client().Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-four.finished
	check("a second next", 403, "GET", "invocation/next", "")
	cancel()
	<-open
}

// TestTruncatedResponse: a partial response of a live runtime must be an error.
func TestTruncatedResponse(t *testing.T) {
	p, _, srv := runtimeOf(t)
	inv := sendEvent(t, p, srv, "one")
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, "half")
		_ = pw.CloseWithError(io.ErrUnexpectedEOF)
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/2018-06-01/runtime/invocation/one/response", pr)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := srv.Client().Do(req); err == nil {
		resp.Body.Close()
	}
	if r := <-inv.result; r.err == nil || !strings.HasPrefix(r.err.Error(), "Runtime.TruncatedResponse") {
		t.Errorf("got %s, %v", r.payload, r.err)
	}
}
