package cluster

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/sync/semaphore"

	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
)

// Bounds of the connections for reads.
const (
	// maxReads is the number of reads in flight to one member up to which they use HTTP/1.1. With more of them, frames of
	// several reads share system calls, and HTTP/2 is faster.
	maxReads = 8
	// readsPerOpening is the number of reads without an idle connection after which the pool opens one. A few requests, as
	// of one kubectl command, open none. A caller who cancels each read causes few handshakes.
	readsPerOpening = 8
	// readIdleTimeout is shorter than the timeout of any load balancer that silently drops idle connections.
	readIdleTimeout = 30 * time.Second
	// readMaxAge bounds the use of one connection, so that new replicas of an API server get their share of reads.
	readMaxAge = 5 * time.Minute
	// sharedInterval is the interval at which a read uses HTTP/2 nevertheless, so that this connection, which writes
	// need, does not reach idleTimeout. It is shorter than pingInterval: a function may be frozen before the answer to a
	// ping arrives. Thaw would then close all connections of the member.
	sharedInterval = pingInterval - 5*time.Second
)

// readPool sends reads over idle HTTP/1.1 connections to one member, which need less CPU time than HTTP/2. A read never
// waits for such a connection: it uses HTTP/2 if none is idle, and the pool opens one in the background. It is safe for
// concurrent use.
type readPool struct {
	next      *connector             // for all other requests
	transport func() *http.Transport // configures connections; those of an earlier result are not used
	address   string                 // server's host and port
	patience  time.Duration          // maximum duration of an opening
	slots     *semaphore.Weighted    // one for each connection to any member

	inFlight atomic.Int64 // reads by either protocol, until their responses are closed

	mu         sync.Mutex
	idle       []*readConn        // the last used one is the last
	open       int                // connections, also those in use and the one that is opened
	stop       context.CancelFunc // ends the opening; nil if there is none
	missed     int                // reads without an idle connection since the last opening
	notBefore  time.Time          // earliest time of the next opening, after a failed one
	generation int                // incremented by CloseIdleConnections
	lastShared time.Time          // time of the last read over HTTP/2
	expiry     *time.Timer        // closes connections that were idle for readIdleTimeout
}

// newReadPool returns a pool whose connections have the configuration of t, which names no proxy.
func newReadPool(next *connector, t *http.Transport, kc *kubeconfig.Config, slots *semaphore.Weighted) *readPool {
	p := &readPool{next: next, transport: func() *http.Transport { return t }, patience: tlsTimeout, slots: slots}
	if plugin := kc.Credential.Plugin; plugin != nil {
		p.transport = newPluginPool(plugin, t).transport
	}
	p.address = net.JoinHostPort(kc.Server.Hostname(), cmp.Or(kc.Server.Port(), "443"))
	p.expiry = time.AfterFunc(readIdleTimeout, p.closeExpired)
	p.expiry.Stop()
	return p
}

// RoundTrip implements http.RoundTripper. A read that fails before its response is repeated over HTTP/2, unless it was
// canceled or timed out.
func (p *readPool) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isSimpleRead(r) {
		return p.next.RoundTrip(r)
	}
	mayUseHTTP1 := p.inFlight.Add(1) <= maxReads
	resp, conn, err := p.send(r, mayUseHTTP1)
	if err != nil {
		p.inFlight.Add(-1)
		return nil, err
	}
	return p.track(resp, conn), nil
}

// send returns a response with its connection, which is nil over HTTP/2.
func (p *readPool) send(r *http.Request, mayUseHTTP1 bool) (*http.Response, *readConn, error) {
	for mayUseHTTP1 {
		conn := p.acquire()
		if conn == nil {
			break
		}
		resp, err := conn.roundTrip(r)
		if err == nil {
			return resp, conn, nil
		}
		p.discard(conn)
		switch {
		case hasExceededDeadline(err):
			p.closeIdle() // which may have the same dead path
			return nil, nil, err
		case r.Context().Err() != nil:
			return nil, nil, err
		}
		mayUseHTTP1 = errors.Is(err, errNotIdle)
	}
	resp, err := p.next.RoundTrip(r)
	return resp, nil, err
}

// isSimpleRead reports whether r is a GET that HTTP/1.1 conveys as exactly as HTTP/2. http.Request.Write does not
// escape spaces, reads a host after two slashes, and changes invalid headers.
func isSimpleRead(r *http.Request) bool {
	isUnsafe := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	isInvalid := func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }
	if r.Method != http.MethodGet || r.Body != nil ||
		!strings.HasPrefix(r.URL.Opaque, "/") || strings.HasPrefix(r.URL.Opaque, "//") ||
		strings.ContainsFunc(r.URL.Opaque, isUnsafe) || strings.ContainsFunc(r.URL.RawQuery, isUnsafe) {
		return false
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, isInvalid) {
			return false
		}
	}
	return true
}

// acquire returns an idle connection, or nil for a read that must use HTTP/2. The caller gives it to track or discard.
func (p *readPool) acquire() *readConn {
	from, now := p.transport(), time.Now().Round(0)
	p.mu.Lock()
	var unusable []*readConn
	defer func() {
		p.mu.Unlock()
		p.discard(unusable...)
	}()
	if now.Sub(p.lastShared) >= readIdleTimeout {
		p.missed = 0 // a connection would be closed before so rare reads need it
	}
	if p.next.open.Load() > 0 && !p.next.isHTTP1.Load() && now.Sub(p.lastShared) < sharedInterval {
		for len(p.idle) > 0 {
			last := len(p.idle) - 1
			conn := p.idle[last]
			p.idle = p.idle[:last]
			if conn.from == from && now.Sub(conn.used) < readIdleTimeout {
				return conn
			}
			unusable = append(unusable, conn)
		}
		p.missed++
		if p.missed >= readsPerOpening && p.stop == nil && p.open < maxReads && now.After(p.notBefore) &&
			p.slots.TryAcquire(1) {
			var ctx context.Context
			ctx, p.stop = context.WithTimeout(context.Background(), p.patience)
			p.missed, p.open = 0, p.open+1
			go p.openIdle(ctx, from, p.generation)
		}
	}
	p.lastShared = now
	return nil
}

// openIdle opens a connection. It does not report an error, because reads without a connection use HTTP/2.
func (p *readPool) openIdle(ctx context.Context, from *http.Transport, generation int) {
	conn, err := openReadConn(ctx, from, p.address)
	if err == nil {
		conn.generation = generation
		p.release(conn)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.open--; !errors.Is(ctx.Err(), context.Canceled) { // by CloseIdleConnections
			p.notBefore = time.Now().Round(0).Add(readIdleTimeout)
		}
		p.slots.Release(1)
	}
	p.stop()
	p.stop = nil
}

// track counts the read as in flight until its response is closed, which must be done even after a cancellation.
func (p *readPool) track(resp *http.Response, conn *readConn) *http.Response {
	body := &readBody{ReadCloser: resp.Body, pool: p, conn: conn, response: resp}
	if resp.Body == http.NoBody {
		body.hasEnded.Store(true)
		_ = body.Close()
		return resp
	}
	resp.Body = body
	return resp
}

// release makes a connection idle whose last response was read to its end.
func (p *readPool) release(conn *readConn) {
	conn.used = time.Now().Round(0)
	keep := conn.used.Sub(conn.opened) < readMaxAge
	p.mu.Lock()
	if keep = keep && conn.generation == p.generation; keep {
		if p.idle = append(p.idle, conn); len(p.idle) == 1 {
			p.expiry.Reset(readIdleTimeout)
		}
	}
	p.mu.Unlock()
	if !keep {
		p.discard(conn)
	}
}

// discard closes connections that are not idle.
func (p *readPool) discard(conns ...*readConn) {
	if len(conns) == 0 {
		return
	}
	for _, conn := range conns {
		_ = conn.socket.Close() // that of TLS could wait for the member
	}
	p.mu.Lock()
	p.open -= len(conns)
	p.mu.Unlock()
	p.slots.Release(int64(len(conns)))
}

// closeExpired closes the connections that were idle for too long.
func (p *readPool) closeExpired() {
	now := time.Now().Round(0)
	p.mu.Lock()
	expired := 0
	for expired < len(p.idle) && now.Sub(p.idle[expired].used) >= readIdleTimeout {
		expired++
	}
	closing := slices.Clone(p.idle[:expired])
	if p.idle = slices.Delete(p.idle, 0, expired); len(p.idle) > 0 {
		p.expiry.Reset(readIdleTimeout - now.Sub(p.idle[0].used))
	}
	p.mu.Unlock()
	p.discard(closing...)
}

// CloseIdleConnections closes the idle connections. Others are closed when their responses are.
func (p *readPool) CloseIdleConnections() {
	p.mu.Lock()
	p.generation++
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	p.closeIdle()
}

func (p *readPool) closeIdle() {
	p.mu.Lock()
	closing := p.idle
	p.idle = nil
	p.expiry.Stop()
	p.mu.Unlock()
	p.discard(closing...)
}

// readBody is the body of a response to a read.
type readBody struct {
	io.ReadCloser
	pool     *readPool
	conn     *readConn // nil over HTTP/2
	response *http.Response
	err      error // of Read. That of net/http returns io.EOF after io.ErrUnexpectedEOF
	hasEnded atomic.Bool
	closed   atomic.Bool
}

// Read implements io.Reader. It returns its first error again.
func (b *readBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	switch cause := context.Cause(b.response.Request.Context()); {
	case errors.Is(err, io.EOF):
		b.hasEnded.Store(true)
	case err != nil && cause != nil:
		err = cause // instead of that of the interrupted connection
	}
	b.err = err
	return n, err
}

// Close implements io.Closer. It is safe for concurrent use. Before the end of a response, it closes the connection:
// the Close of net/http would read the rest.
func (b *readBody) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	b.pool.inFlight.Add(-1)
	if b.conn == nil {
		return b.ReadCloser.Close()
	}
	if b.conn.stopInterrupt() && b.hasEnded.Load() && !b.response.Close {
		b.pool.release(b.conn)
	} else {
		b.pool.discard(b.conn)
	}
	return nil
}
