package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// respond sends text instead of a response. over HTTP/1.1 it then leaves the connection open until it is closed.
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
		"many interim":           strings.Repeat("HTTP/1.1 103 Early\r\n\r\n", maxInterim+1) + ok + "\r\n",
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

// TestResponsesByHTTP1 fails if a body or its end were another than the member sent, or if a connection was used again
// that must not be.
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
				conn := p.acquire()
				if conn == nil {
					t.Fatal("the connection is not used again")
				}
				p.discard(conn)
				return
			}
			waittest.Until(t, "the connection is not used again", func() bool {
				if conn := p.acquire(); conn != nil {
					p.release(conn) // its record may not have arrived yet
					return false
				}
				return true
			})
		})
	}
}

// TestBrokenBody fails if a body that breaks off looked complete.
func TestBrokenBody(t *testing.T) {
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
	_ = resp.Body.Close()
	if p.openConns() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, %d in flight", p.openConns(), p.inFlight.Load())
	}
}

// TestCancelDuringBody fails if a canceled read waited for its member, had another error than that of its context, or
// left its connection open.
func TestCancelDuringBody(t *testing.T) {
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

// TestCloseDuringBody fails if Close read the rest of a response, which a member may never send.
func TestCloseDuringBody(t *testing.T) {
	m, p := newRawReader(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
	_ = startByHTTP1(t, m, "/raw").Body.Close()
	if p.openConns() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, %d in flight", p.openConns(), p.inFlight.Load())
	}
}

// TestBodiesMayLast fails if the deadline of a header also ended a body.
func TestBodiesMayLast(t *testing.T) {
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

// TestInvalidHeaders fails if a value with a line break was sent, which http.Request.Write would replace by a space.
// The name of an impersonated user would then be another one.
func TestInvalidHeaders(t *testing.T) {
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

// TestServersThatSpeakFirst fails if a connection could be used whose server sent bytes before any request, or closed
// it.
func TestServersThatSpeakFirst(t *testing.T) {
	srv := newReadServer(t, nil, nil)
	_, p := newReader(t, srv, 100)
	for name, text := range map[string]string{"bytes": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "end": ""} {
		t.Run(name, func(t *testing.T) {
			ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: srv.TLS.Certificates,
				MinVersion: tls.VersionTLS12})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ln.Close() }()
			var group sync.WaitGroup
			defer group.Wait()
			finish := make(chan struct{})
			defer close(finish)
			group.Go(func() {
				conn, err := ln.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, text) // after the handshake
				if text != "" {
					<-finish
				}
				_ = conn.Close()
			})
			conn, err := openReadConn(t.Context(), p.transport(), ln.Addr().String())
			if err != nil {
				return
			}
			defer func() { _ = conn.secure.Close() }()
			waittest.Until(t, "the connection is unusable", func() bool { return !conn.isIdle() })
		})
	}
}
