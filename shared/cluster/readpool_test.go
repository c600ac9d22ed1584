package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const byHTTP1, byHTTP2 = "HTTP/1.1", "HTTP/2.0"

// newReadServer returns a server that answers with the protocol of the request. It calls open in each handshake of
// HTTP/1.1, and prepare before each answer. Both may be nil.
func newReadServer(t *testing.T, open func() error, prepare http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if prepare != nil {
			prepare(w, r)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if open == nil || slices.Contains(hello.SupportedProtos, "h2") {
			return nil, nil
		}
		return nil, open()
	}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// newReader returns a member and the pool of its reads, with so many slots.
func newReader(t *testing.T, srv *httptest.Server, slots int64) (*Member, *readPool) {
	t.Helper()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	m := newMember(&v1alpha1.Cluster{}, &kubeconfig.Config{Server: u,
		TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}, DialPolicy{AllowLoopback: true}, nil,
		semaphore.NewWeighted(slots))
	t.Cleanup(m.Close)
	return m, m.Single.(*guardedTransport).next.(*readPool)
}

// start sends a request whose path and query are target, and returns its response.
func start(ctx context.Context, m *Member, method, target string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, m.Server.String(), body)
	if err != nil {
		return nil, err
	}
	r.URL.Path = ""
	r.URL.Opaque, r.URL.RawQuery, _ = strings.Cut(target, "?")
	return m.Single.RoundTrip(r)
}

// startByHTTP1 returns the response to a read, which must use HTTP/1.1. The caller closes it.
func startByHTTP1(t *testing.T, m *Member, target string) *http.Response {
	t.Helper()
	resp, err := start(t.Context(), m, http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Proto != byHTTP1 {
		t.Errorf("the read has %s", resp.Proto)
	}
	return resp
}

// send returns the text of the response.
func send(t *testing.T, m *Member, method, target string, body io.Reader) string {
	t.Helper()
	resp, err := start(t.Context(), m, method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// read returns the protocol of a read.
func read(t *testing.T, m *Member) string {
	t.Helper()
	return send(t, m, http.MethodGet, "/", nil)
}

// idleConns returns the number of idle connections.
func (p *readPool) idleConns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// openConns returns the number of connections, with the one that is opened.
func (p *readPool) openConns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// warm reads until so many connections are idle that no read has used.
func warm(t *testing.T, m *Member, p *readPool, conns int) {
	t.Helper()
	if got := read(t, m); got != byHTTP2 {
		t.Errorf("the first read has %s", got)
	}
	var unused []*readConn
	for range conns {
		waittest.Until(t, "the pool opens a connection", func() bool {
			if conn := p.acquire(); conn != nil {
				unused = append(unused, conn)
				return true
			}
			_ = read(t, m)
			return false
		})
	}
	for _, conn := range unused {
		p.release(conn)
	}
}

// TestReadsUseIdleConnections fails if reads of a busy member had the costs of HTTP/2, or if anything else used
// HTTP/1.1.
func TestReadsUseIdleConnections(t *testing.T) {
	for _, tt := range []struct {
		name, method, target, body, want string
	}{
		{"read", http.MethodGet, "/", "", byHTTP1},
		{"query", http.MethodGet, "/a%20b?c=%20&d=+", "", byHTTP1},
		{"read with body", http.MethodGet, "/", "body", byHTTP2},
		{"write", http.MethodPost, "/", "body", byHTTP2},
		{"write without body", http.MethodDelete, "/", "", byHTTP2},
		{"space in the query", http.MethodGet, "/?a=b HTTP/1.1", "", byHTTP2},
		{"not ASCII", http.MethodGet, "/?a=ö", "", byHTTP2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, p := newReader(t, newReadServer(t, nil, nil), 100)
			warm(t, m, p, 1)
			var body io.Reader
			if tt.body != "" {
				body = strings.NewReader(tt.body)
			}
			if got := send(t, m, tt.method, tt.target, body); got != tt.want || p.inFlight.Load() != 0 {
				t.Errorf("it has %s, want %s; %d in flight", got, tt.want, p.inFlight.Load())
			}
		})
	}
}

// TestReadsNeverWaitForConnections fails if a read waited for a handshake of HTTP/1.1, or if one outlasted Close.
func TestReadsNeverWaitForConnections(t *testing.T) {
	begun, finish := make(chan struct{}, maxReads), make(chan struct{})
	srv := newReadServer(t, func() error { begun <- struct{}{}; <-finish; return nil }, nil)
	t.Cleanup(func() { close(finish) })
	m, p := newReader(t, srv, 100)
	p.patience = time.Hour
	for range 10 * readsPerOpening {
		if got := read(t, m); got != byHTTP2 {
			t.Fatalf("a read has %s", got)
		}
	}
	<-begun
	if got := p.openConns(); got != 1 {
		t.Errorf("%d connections are opened at a time", got)
	}
	m.Close()
	waittest.Until(t, "the opening ends", func() bool { return p.openConns() == 0 })
	if !p.notBefore.IsZero() {
		t.Error("the next opening is delayed, as if the member had refused this one")
	}
}

// TestReadsOfMemberWithoutHTTP1 fails if reads of a member that refuses connections of HTTP/1.1 tried to open one again
// and again.
func TestReadsOfMemberWithoutHTTP1(t *testing.T) {
	var refused atomic.Int32
	m, p := newReader(t, newReadServer(t, func() error { refused.Add(1); return errors.New("refused") }, nil), 100)
	waittest.Until(t, "an opening has failed", func() bool {
		_ = read(t, m)
		return refused.Load() > 0 && p.openConns() == 0
	})
	for range 10 * readsPerOpening {
		if got := read(t, m); got != byHTTP2 {
			t.Fatalf("a read has %s", got)
		}
	}
	if refused.Load() != 1 {
		t.Errorf("%d connections were tried", refused.Load())
	}
}

// TestRareReadsOpenNoConnection fails if reads opened a connection that would be closed before the next one.
func TestRareReadsOpenNoConnection(t *testing.T) {
	m, p := newReader(t, newReadServer(t, nil, nil), 100)
	for range 10 * readsPerOpening {
		p.lastShared = p.lastShared.Add(-readIdleTimeout)
		if got := read(t, m); got != byHTTP2 || p.openConns() > 0 {
			t.Fatalf("a read has %s, and the pool %d connections", got, p.openConns())
		}
	}
}

// TestMembersHaveFewConnections fails if reads opened more connections than the bounds of a member and of a process.
func TestMembersHaveFewConnections(t *testing.T) {
	for name, tt := range map[string]struct{ slots, want int }{
		"of a member": {100, maxReads}, "of a process": {3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			m, p := newReader(t, newReadServer(t, nil, nil), int64(tt.slots))
			warm(t, m, p, tt.want)
			var used []*readConn
			for range tt.want {
				used = append(used, p.acquire())
			}
			for range 10 * readsPerOpening {
				if got := read(t, m); got != byHTTP2 || p.openConns() != tt.want {
					t.Fatalf("a read has %s; %d connections, want %d", got, p.openConns(), tt.want)
				}
			}
			for _, conn := range used {
				p.release(conn)
			}
		})
	}
}

// TestManyReadsUseHTTP2 fails if reads of a member with many in flight used or opened other connections.
func TestManyReadsUseHTTP2(t *testing.T) {
	finish := make(chan struct{})
	var slow atomic.Int32
	srv := newReadServer(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow.Add(1)
			<-finish
		}
	})
	m, p := newReader(t, srv, 100)
	warm(t, m, p, 2)
	var group sync.WaitGroup
	for range maxReads {
		group.Go(func() {
			resp, err := start(t.Context(), m, http.MethodGet, "/slow", nil)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	waittest.Until(t, "the reads are in flight", func() bool { return slow.Load() == maxReads })
	before := p.openConns()
	for range 10 * readsPerOpening {
		if got := read(t, m); got != byHTTP2 || p.openConns() != before {
			t.Errorf("a read beside %d others has %s; %d connections", maxReads, got, p.openConns())
		}
	}
	close(finish)
	group.Wait()
	if p.inFlight.Load() != 0 {
		t.Errorf("%d in flight", p.inFlight.Load())
	}
}

// TestReadsAreRepeatedByHTTP2 fails if a connection that a member closed failed a read, or if a broken response looked
// complete. It also fails if a canceled read, or one that timed out, was repeated.
func TestReadsAreRepeatedByHTTP2(t *testing.T) {
	reads := make(chan string, 10)
	srv := newReadServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		reads <- r.Proto
		switch {
		case r.Proto == byHTTP2:
		case r.URL.Path == "/closes":
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/unframed":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nthe first half")
			_ = conn.Close()
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/hangs":
			<-r.Context().Done()
		}
	})
	m, p := newReader(t, srv, 100)
	warm(t, m, p, 5)
	for _, path := range []string{"/closes", "/unframed"} {
		if got := send(t, m, http.MethodGet, path, nil); got != byHTTP2 {
			t.Errorf("%s: %q", path, got)
		}
		if first, second := <-reads, <-reads; first != byHTTP1 || second != byHTTP2 {
			t.Errorf("%s has %s, then %s", path, first, second)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { <-reads; cancel() })
	if resp, err := start(ctx, m, http.MethodGet, "/hangs", nil); err == nil {
		_ = resp.Body.Close()
		t.Error("a canceled read is repeated")
	}
	group.Wait()
	p.transport().ResponseHeaderTimeout = 2 * time.Second
	if resp, err := start(t.Context(), m, http.MethodGet, "/hangs", nil); err == nil {
		_ = resp.Body.Close()
		t.Error("a read that timed out is repeated")
	} else if !hasExceededDeadline(err) {
		t.Error(err)
	}
	if got := <-reads; got != byHTTP1 || len(reads) > 0 {
		t.Errorf("the read that timed out had %s, and was repeated %d times", got, len(reads))
	}
	if p.openConns() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, which may be as dead; %d in flight", p.openConns(), p.inFlight.Load())
	}
}

// TestReadConnectionsAreClosed fails if connections stayed open that the pool no longer uses, or if it used one of
// those.
func TestReadConnectionsAreClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(t *testing.T, m *Member, p *readPool)
		want int // connections after the edit
	}{
		"after idle time": {func(_ *testing.T, _ *Member, p *readPool) {
			p.idle[0].used = p.idle[0].used.Add(-readIdleTimeout)
			p.closeExpired()
		}, 1},
		"after Close": {func(_ *testing.T, m *Member, _ *readPool) { m.Close() }, 0},
		"after sleep": {func(t *testing.T, m *Member, p *readPool) {
			for _, conn := range p.idle {
				conn.used = conn.used.Add(-readIdleTimeout)
			}
			if got := read(t, m); got != byHTTP2 {
				t.Errorf("the next read has %s", got)
			}
		}, 0},
		"after canceled read": {func(t *testing.T, m *Member, _ *readPool) {
			_ = startByHTTP1(t, m, "/large").Body.Close() // before its end
		}, 1},
		"after a read that timed out": {func(t *testing.T, m *Member, _ *readPool) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if resp, err := start(ctx, m, http.MethodGet, "/hangs", nil); err == nil {
				_ = resp.Body.Close()
				t.Error("the read has a response")
			}
		}, 0},
		"after old age": {func(t *testing.T, m *Member, p *readPool) {
			p.idle[1].opened = p.idle[1].opened.Add(-readMaxAge)
			if got := read(t, m); got != byHTTP1 {
				t.Errorf("the last read has %s", got)
			}
		}, 1},
		"after Close during a read": {func(t *testing.T, m *Member, _ *readPool) {
			resp := startByHTTP1(t, m, "/")
			m.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}, 0},
		"never while HTTP/2 must be kept open": {func(t *testing.T, m *Member, p *readPool) {
			p.lastShared = p.lastShared.Add(-sharedInterval)
			if got := read(t, m); got != byHTTP2 {
				t.Errorf("the read has %s", got)
			}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newReadServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/large":
					_, _ = w.Write(make([]byte, 10<<20))
				case "/hangs":
					<-r.Context().Done()
				}
			})
			m, p := newReader(t, srv, 2)
			warm(t, m, p, 2)
			if p.slots.TryAcquire(1) {
				t.Error("connections need no slots")
			}
			tt.edit(t, m, p)
			if p.openConns() != tt.want || p.idleConns() != tt.want || p.inFlight.Load() != 0 {
				t.Errorf("%d connections, %d idle, %d reads in flight; want %d", p.openConns(), p.idleConns(),
					p.inFlight.Load(), tt.want)
			}
			if free := int64(2 - tt.want); !p.slots.TryAcquire(free) || p.slots.TryAcquire(1) {
				t.Errorf("not %d slots are free", free)
			}
		})
	}
}

// TestOnlyDirectTLSMembersHavePool fails if reads opened connections through a tunnel beside that of HTTP/2, to a
// server without TLS, or past a proxy.
func TestOnlyDirectTLSMembersHavePool(t *testing.T) {
	for name, tt := range map[string]struct {
		server  string
		mode    v1alpha1.SyncMode
		proxy   *url.URL
		hasPool bool
	}{
		"direct":  {"https://m", v1alpha1.Push, nil, true},
		"private": {"https://m", v1alpha1.Pull, nil, false},
		"plain":   {"http://m", v1alpha1.Push, nil, false},
		"proxied": {"https://m", v1alpha1.Push, &url.URL{Scheme: "http", Host: "proxy:3128"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(tt.server)
			if err != nil {
				t.Fatal(err)
			}
			c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{SyncMode: tt.mode}}
			m := newMember(c, &kubeconfig.Config{Server: u, ProxyURL: tt.proxy,
				TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, DialPolicy{}, nil, semaphore.NewWeighted(1))
			t.Cleanup(m.Close)
			if hasPool := m.Single != m.REST; hasPool != tt.hasPool {
				t.Errorf("it has a pool: %v", hasPool)
			}
		})
	}
}
