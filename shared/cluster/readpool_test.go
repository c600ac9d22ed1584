package cluster

import (
	"context"
	"crypto/tls"
	"io"
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
)

const byHTTP1, byHTTP2 = "HTTP/1.1", "HTTP/2.0"

// readServer answers with the protocol of the request.
type readServer struct {
	*httptest.Server
	opened atomic.Int32 // connections of HTTP/1.1
}

// newReadServer calls open, if it is not nil, in each handshake of HTTP/1.1, and before, if it is not nil, before each
// answer.
func newReadServer(t *testing.T, open func(), before http.HandlerFunc) *readServer {
	t.Helper()
	s := &readServer{Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil {
			before(w, r)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))}
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !slices.Contains(hello.SupportedProtos, "h2") {
			if open != nil {
				open()
			}
			s.opened.Add(1)
		}
		return nil, nil
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// newReader returns a member whose reads have slots, and its pool.
func newReader(t *testing.T, srv *readServer, slots *semaphore.Weighted) (*Member, *readPool) {
	t.Helper()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	m := newMember(&v1alpha1.Cluster{}, &kubeconfig.Config{Server: u,
		TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}, DialPolicy{AllowLoopback: true}, nil, slots)
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

// read returns the protocol of a read.
func read(t *testing.T, m *Member) string {
	t.Helper()
	resp, err := start(t.Context(), m, http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
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

// warm reads until so many connections are idle.
func warm(t *testing.T, m *Member, p *readPool, conns int) {
	t.Helper()
	if got := read(t, m); got != byHTTP2 {
		t.Errorf("the first read has %s", got)
	}
	var acquired []*readConn // from the pool, so that it opens more
	for range conns {
		for waited := time.Now(); p.idleConns() == 0; time.Sleep(time.Millisecond) {
			_ = read(t, m)
			if time.Since(waited) > time.Minute {
				t.Fatal("the pool opens no connection")
			}
		}
		acquired = append(acquired, p.acquire())
	}
	for _, conn := range acquired {
		p.release(conn)
	}
}

// TestReadsUseIdleConnections fails if reads of a busy member had the costs of HTTP/2, or if anything else used
// HTTP/1.1.
func TestReadsUseIdleConnections(t *testing.T) {
	srv := newReadServer(t, nil, nil)
	m, p := newReader(t, srv, semaphore.NewWeighted(100))
	warm(t, m, p, 2)
	for _, tt := range []struct {
		name, method, target, body, want string
	}{
		{"read", http.MethodGet, "/", "", byHTTP1},
		{"query", http.MethodGet, "/a%20b?c=%20&d=+", "", byHTTP1},
		{"second connection", http.MethodGet, "/", "", byHTTP1},
		{"read with body", http.MethodGet, "/", "body", byHTTP2},
		{"write", http.MethodPost, "/", "body", byHTTP2},
		{"write without body", http.MethodDelete, "/", "", byHTTP2},
		{"space in the query", http.MethodGet, "/?a=b HTTP/1.1", "", byHTTP2},
		{"not ASCII", http.MethodGet, "/?a=ö", "", byHTTP2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var body io.Reader
			if tt.body != "" {
				body = strings.NewReader(tt.body)
			}
			resp, err := start(t.Context(), m, tt.method, tt.target, body)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(got) != tt.want || err != nil {
				t.Errorf("it has %s, %v; want %s", got, err, tt.want)
			}
		})
	}
	if got := srv.opened.Load(); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
	resp, err := start(t.Context(), m, http.MethodHead, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Proto != byHTTP1 || p.inFlight.Load() != 0 || p.idleConns() != 2 {
		t.Errorf("HEAD has %s; %d in flight, %d idle", resp.Proto, p.inFlight.Load(), p.idleConns())
	}
	_ = resp.Body.Close()
}

// TestReadsNeverWaitForConnections fails if a read waited for a handshake of HTTP/1.1.
func TestReadsNeverWaitForConnections(t *testing.T) {
	begun, finish := make(chan struct{}, maxReads), make(chan struct{})
	srv := newReadServer(t, func() { begun <- struct{}{}; <-finish }, nil)
	t.Cleanup(func() { close(finish) })
	m, p := newReader(t, srv, semaphore.NewWeighted(100))
	for range 10 * readsPerOpening {
		if got := read(t, m); got != byHTTP2 {
			t.Fatalf("a read has %s", got)
		}
	}
	<-begun
	if got := p.openConns(); got != 1 {
		t.Errorf("%d connections are opened at a time", got)
	}
	m.Close() // ends the opening
	for waited := time.Now(); p.openConns() > 0; time.Sleep(time.Millisecond) {
		if time.Since(waited) > tlsTimeout/2 {
			t.Fatal("the opening goes on after Close")
		}
	}
}

// TestManyReadsUseHTTP2 fails if a member with many reads in flight got more connections, or if a read waited for one.
func TestManyReadsUseHTTP2(t *testing.T) {
	finish := make(chan struct{})
	srv := newReadServer(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-finish
		}
	})
	m, p := newReader(t, srv, semaphore.NewWeighted(100))
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
	for p.inFlight.Load() < maxReads {
		time.Sleep(time.Millisecond)
	}
	for range 10 * readsPerOpening {
		if got := read(t, m); got != byHTTP2 {
			t.Errorf("a read beside %d others has %s", maxReads, got)
		}
	}
	close(finish)
	group.Wait()
	if got := p.openConns(); got > maxReads || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, %d in flight", got, p.inFlight.Load())
	}
}

// TestReadsAreRepeatedByHTTP2 fails if a connection that a member closed failed a read, or if a read was repeated that
// its caller canceled, or that timed out.
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
		case r.URL.Path == "/hangs":
			<-r.Context().Done()
		}
	})
	m, p := newReader(t, srv, semaphore.NewWeighted(100))
	p.transport().ResponseHeaderTimeout = 500 * time.Millisecond
	warm(t, m, p, 3)
	resp, err := start(t.Context(), m, http.MethodGet, "/closes", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if first, second := <-reads, <-reads; first != byHTTP1 || second != byHTTP2 {
		t.Errorf("the read has %s, then %s", first, second)
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
	if resp, err := start(t.Context(), m, http.MethodGet, "/hangs", nil); !hasExceededDeadline(err) {
		_ = resp.Body.Close()
		t.Errorf("a read that timed out: %v", err)
	}
	if got := <-reads; got != byHTTP1 || len(reads) > 0 {
		t.Errorf("the read that timed out had %s, and was repeated %d times", got, len(reads))
	}
	if p.openConns() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d connections, %d in flight", p.openConns(), p.inFlight.Load())
	}
}

// TestReadConnectionsAreClosed fails if connections stayed open that the pool no longer uses, or if it used one of
// those.
func TestReadConnectionsAreClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(m *Member, p *readPool)
		want int // connections after the edit
	}{
		"after idle time": {func(_ *Member, p *readPool) {
			p.idle[0].used = p.idle[0].used.Add(-readIdleTimeout)
			p.closeExpired()
		}, 1},
		"after Close": {func(m *Member, _ *readPool) { m.Close() }, 0},
		"after sleep": {func(m *Member, p *readPool) {
			for _, conn := range p.idle {
				conn.used = conn.used.Add(-readIdleTimeout)
			}
			resp, err := start(t.Context(), m, http.MethodGet, "/", nil)
			if err != nil || resp.Proto != byHTTP2 {
				t.Errorf("the next read has %v", err)
			}
			_ = resp.Body.Close()
		}, 0},
		"after canceled read": {func(m *Member, _ *readPool) {
			resp, err := start(t.Context(), m, http.MethodGet, "/large", nil)
			if err != nil || resp.Proto != byHTTP1 {
				t.Errorf("the read has %v", err)
			}
			_ = resp.Body.Close() // before its end
		}, 1},
		"after old age": {func(m *Member, p *readPool) {
			p.idle[1].opened = p.idle[1].opened.Add(-readMaxAge)
			if got := read(t, m); got != byHTTP1 {
				t.Errorf("the last read has %s", got)
			}
		}, 1},
		"after Close during a read": {func(m *Member, _ *readPool) {
			resp, err := start(t.Context(), m, http.MethodGet, "/", nil)
			if err != nil || resp.Proto != byHTTP1 {
				t.Errorf("the read has %v", err)
			}
			m.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}, 0},
		"never while HTTP/2 must be kept open": {func(m *Member, p *readPool) {
			p.lastShared = p.lastShared.Add(-sharedInterval)
			if got := read(t, m); got != byHTTP2 {
				t.Errorf("the read has %s", got)
			}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newReadServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/large" {
					_, _ = w.Write(make([]byte, 10<<20))
				}
			})
			slots := semaphore.NewWeighted(2)
			m, p := newReader(t, srv, slots)
			warm(t, m, p, 2)
			if slots.TryAcquire(1) {
				t.Error("connections need no slots")
			}
			tt.edit(m, p)
			if p.openConns() != tt.want || p.idleConns() != tt.want || p.inFlight.Load() != 0 {
				t.Errorf("%d connections, %d idle, %d reads in flight; want %d", p.openConns(), p.idleConns(),
					p.inFlight.Load(), tt.want)
			}
			if free := int64(2 - tt.want); !slots.TryAcquire(free) || slots.TryAcquire(1) {
				t.Errorf("not %d slots are free", free)
			}
		})
	}
}

// TestReadsOfPrivateMember fails if reads opened connections through a tunnel beside that of HTTP/2, or to a server
// without TLS.
func TestReadsOfPrivateMember(t *testing.T) {
	for server, mode := range map[string]v1alpha1.SyncMode{"https://m": v1alpha1.Pull, "http://m": v1alpha1.Push} {
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{SyncMode: mode}}
		m := newMember(c, &kubeconfig.Config{Server: u, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, DialPolicy{}, nil,
			semaphore.NewWeighted(1))
		if m.Single != m.REST {
			t.Errorf("%s has a pool", server)
		}
	}
}
