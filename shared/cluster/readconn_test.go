package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// respond sends text as the response, and leaves the connection open until the gateway closes it.
func respond(w http.ResponseWriter, text ...string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	for _, part := range text {
		_, _ = io.WriteString(conn, part)
	}
	_, _ = io.Copy(io.Discard, conn) // until the gateway closes it
	_ = conn.Close()
	panic(http.ErrAbortHandler)
}

// newRawReader returns a warm member that responds with parts, each in a TLS record of its own, to reads by HTTP/1.1.
func newRawReader(t *testing.T, parts ...string) (*Member, *readPool) {
	t.Helper()
	m, p := newReader(t, newReadServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Proto == byHTTP1 && r.URL.Path == "/raw" {
			respond(w, parts...)
		}
	}), 100)
	warm(t, m, p, 1)
	return m, p
}

// TestUnusableResponsesAreReplaced fails if a response that HTTP/1.1 does not allow reached the caller, or its
// connection stayed open.
func TestUnusableResponsesAreReplaced(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, text := range map[string]string{
		"not HTTP":               "hello\r\n\r\n",
		"large header":           ok + "A: " + strings.Repeat("a", 2<<20) + "\r\nContent-Length: 0\r\n\r\n",
		"large interim":          "HTTP/1.1 103 Early\r\nA: " + strings.Repeat("a", 2<<20) + "\r\n\r\n",
		"many interim":           strings.Repeat("HTTP/1.1 103 Early\r\n\r\n", maxInterimResponses+1) + ok + "\r\n",
		"no status code":         "HTTP/1.1 050 ?\r\nContent-Length: 38\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n",
		"another protocol":       "HTTP/1.1 101 Switching\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\n",
		"two lengths":            ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"no length":              ok + "\r\nthe first half",
		"no length, HTTP/1.0":    "HTTP/1.0 200 OK\r\n\r\nthe first half",
		"unknown coding of body": ok + "Transfer-Encoding: gzip\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			m, p := newRawReader(t, text)
			if got := send(t, m, http.MethodGet, "/raw", nil); got != byHTTP2 {
				t.Errorf("the response is %q", got)
			}
			if p.openConns() != 0 || p.inFlight.Load() != 0 {
				t.Errorf("%d connections, %d in flight", p.openConns(), p.inFlight.Load())
			}
		})
	}
}

// TestResponsesByHTTP1 fails if a body differed from what the member sent, or if a connection with other bytes was used
// again.
func TestResponsesByHTTP1(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, tt := range map[string]struct {
		parts      []string
		want       string
		isReusable bool
	}{
		"length": {[]string{ok + "Content-Length: 2\r\n\r\n", "a", "b"}, "ab", true},
		"chunks": {
			[]string{ok + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "1\r\nb\r\n0\r\n\r\n"}, "ab", true},
		"no content":   {[]string{"HTTP/1.1 204 No Content\r\n\r\n"}, "", true},
		"not modified": {[]string{"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"}, "", true},
		"interim":      {[]string{"HTTP/1.1 103 Early\r\n\r\n", ok + "Content-Length: 1\r\n\r\na"}, "a", true},
		"end":          {[]string{ok + "Connection: close\r\nContent-Length: 1\r\n\r\na"}, "a", false},
		"another response": {
			[]string{ok + "Content-Length: 1\r\n\r\na" + ok + "Content-Length: 1\r\n\r\nb"}, "a", false},
		"response in the next record": {
			[]string{ok + "Content-Length: 1\r\n\r\na", ok + "Content-Length: 1\r\n\r\nb"}, "a", false},
		"response after a large one": {[]string{
			ok + "Content-Length: 9000\r\n\r\n" + strings.Repeat("a", 8999), "a" + ok + "Content-Length: 1\r\n\r\nb"},
			strings.Repeat("a", 9000), false},
	} {
		t.Run(name, func(t *testing.T) {
			m, p := newRawReader(t, tt.parts...)
			resp := startByHTTP1(t, m, "/raw")
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(got) != tt.want || err != nil {
				t.Errorf("%d bytes %.20q, %v; want %d bytes %.20q", len(got), got, err, len(tt.want), tt.want)
			}
			if tt.isReusable {
				if conn := p.acquire(); conn == nil || !conn.isIdle() {
					t.Error("the connection is not used again")
				} else {
					p.discard(conn)
				}
				return
			}
			waittest.Until(t, "the other bytes arrive", func() bool {
				conn := p.acquire()
				if conn == nil {
					return true
				}
				isIdle := conn.isIdle()
				p.release(conn)
				return !isIdle
			})
			if got := read(t, m); got != byHTTP2 {
				t.Errorf("the next read has %q", got)
			}
		})
	}
}

// TestTruncatedBodyIsAnError fails if a body that breaks off looked complete, also to a reader that reads again.
func TestTruncatedBodyIsAnError(t *testing.T) {
	m, p := newReader(t, newReadServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Proto == byHTTP1 && r.URL.Path == "/raw" {
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}), 100)
	warm(t, m, p, 1)
	resp := startByHTTP1(t, m, "/raw")
	if got, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", got, err)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a second reader gets %d bytes, %v", n, err)
	}
	_ = resp.Body.Close()
	if p.openConns() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, %d in flight", p.openConns(), p.inFlight.Load())
	}
}

// TestCancellationEndsBody fails if a canceled read waited for its member, had another error than that of its context,
// or left its connection open.
func TestCancellationEndsBody(t *testing.T) {
	m, p := newRawReader(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
	why := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	resp, err := start(ctx, m, http.MethodGet, "/raw", nil)
	if err != nil || resp.Proto != byHTTP1 {
		t.Fatal(resp, err)
	}
	b := make([]byte, 2)
	if n, err := resp.Body.Read(b); n != 1 || err != nil {
		t.Error(n, err)
	}
	cancel(why)
	if n, err := resp.Body.Read(b); n != 0 || !errors.Is(err, why) {
		t.Error(n, err)
	}
	_ = resp.Body.Close()
	if p.openConns() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, %d in flight", p.openConns(), p.inFlight.Load())
	}
}

// TestCloseReadsNoRest fails if Close read the rest of a response, which a member may never send.
func TestCloseReadsNoRest(t *testing.T) {
	m, p := newRawReader(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
	_ = startByHTTP1(t, m, "/raw").Body.Close()
	if p.openConns() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, %d in flight", p.openConns(), p.inFlight.Load())
	}
}

// TestHeaderTimeoutDoesNotEndBody fails if the deadline of a header also ended a body.
func TestHeaderTimeoutDoesNotEndBody(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	next := make(chan struct{})
	m, p := newReader(t, newReadServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Proto == byHTTP1 && r.URL.Path == "/raw" {
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}), 100)
	warm(t, m, p, 1)
	p.transport().ResponseHeaderTimeout = timeout
	resp := startByHTTP1(t, m, "/raw")
	time.AfterFunc(timeout+100*time.Millisecond, func() { close(next) })
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != byHTTP1 {
		t.Errorf("%q, %v", got, err)
	}
	_ = resp.Body.Close()
}

// TestInvalidHeadersAreRefused fails if a value with a line break was sent, which http.Request.Write would replace by a
// space. The name of an impersonated user would then be another one.
func TestInvalidHeadersAreRefused(t *testing.T) {
	m, p := newRawReader(t)
	for _, header := range []http.Header{{"Impersonate-User": {"a\nb"}}, {"A\nB": {"c"}}, {"A B": {"c"}}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.Server.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path, r.URL.Opaque, r.Header = "", "/", header
		if resp, err := m.Single.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%v is sent", header)
		}
	}
	if p.idleConns() != 1 {
		t.Errorf("%d connections are idle", p.idleConns())
	}
}

// TestUnsolicitedBytesMakeConnectionUnusable fails if a connection could be used whose server sent bytes before any
// request, or closed it. The session tickets of TLS 1.3 are no such bytes.
func TestUnsolicitedBytesMakeConnectionUnusable(t *testing.T) {
	srv := newReadServer(t, nil, nil)
	m, p := newReader(t, srv, 100)
	for name, tt := range map[string]struct {
		text   string
		isOpen bool // the server leaves the connection open
		isIdle bool
	}{
		"bytes":   {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true, false},
		"end":     {"", false, false},
		"tickets": {"", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: srv.TLS.Certificates,
				MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert}) // so that tickets come last
			if err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			defer group.Wait()
			defer func() { _ = ln.Close() }()
			sent, finish := make(chan struct{}), make(chan struct{})
			defer close(finish)
			group.Go(func() {
				conn, err := ln.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, tt.text) // after the handshake, and its tickets
				if !tt.isOpen {
					_ = conn.Close()
				}
				close(sent)
				<-finish
				_ = conn.Close()
			})
			conn, err := openReadConn(t.Context(), p.transport(), ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.socket.Close() }()
			<-sent
			waittest.Until(t, "bytes arrive", conn.socket.isStale)
			if m.dialer.isStale() {
				t.Error("Thaw would close all connections because of them")
			}
			if tt.isIdle {
				if !conn.isIdle() || conn.socket.isStale() {
					t.Error("the connection is unusable after its tickets")
				}
				return
			}
			waittest.Until(t, "the connection is unusable", func() bool { return !conn.isIdle() })
		})
	}
}

// TestOnlyPathsAreSimpleReads fails if a path could become another host or another request over HTTP/1.1.
func TestOnlyPathsAreSimpleReads(t *testing.T) {
	for opaque, want := range map[string]bool{
		"/api/v1/pods": true, "": false, "//host/api": false, "http://host/api": false, "/a b": false, "/ö": false,
	} {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "m", Opaque: opaque}}
		if got := isSimpleRead(r); got != want {
			t.Errorf("%q: %v", opaque, got)
		}
	}
}
