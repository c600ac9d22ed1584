// Package conns bounds the connections of an HTTP server that carry no request.
//
// Invariants:
//   - A connection with a request in progress is never closed.
//   - The longest idle connection of a source closes first, so a client that connects anew is served.
//   - Connections before their first request close no others, and are closed by no others.
//   - Each change costs constant time, however many connections and sources there are.
package conns

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/clusterpass/clusterpass/shared/limits"
)

// Idle closes connections without a request beyond a limit; zero means no limit. Connections before and after their
// first request are counted separately. Call Track from http.Server.ConnState. It is safe for concurrent use.
type Idle struct {
	Max          int // in all; the source with the most connections loses its oldest
	MaxPerSource int // of one source; connections of unknown sources are not limited by it

	mu        sync.Mutex
	unused    pool // before their first request
	keptAlive pool // after a request
}

// Track records the state of a connection, and may close another one.
func (i *Idle) Track(c net.Conn, state http.ConnState) {
	if excess := i.update(c, state); excess != nil {
		closeNow(excess)
	}
}

func (i *Idle) update(c net.Conn, state http.ConnState) net.Conn {
	source := sourceOf(c)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unused.remove(c, source)
	i.keptAlive.remove(c, source)
	switch state {
	case http.StateNew:
		return i.add(&i.unused, c, source)
	case http.StateIdle:
		return i.add(&i.keptAlive, c, source)
	default:
		return nil
	}
}

// add returns the connection that exceeds a limit, or nil.
func (i *Idle) add(to *pool, c net.Conn, source limits.Source) net.Conn {
	to.add(c, source)
	switch {
	case i.MaxPerSource > 0 && source.IsKnown() && to.bySource[source].Len() > i.MaxPerSource:
		return to.removeOldest(source)
	case i.Max > 0 && len(to.open) > i.Max:
		return to.removeOldest(to.largest())
	}
	return nil
}

func sourceOf(c net.Conn) limits.Source {
	if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return limits.SourceOf(addr.AddrPort().Addr())
	}
	return limits.SourceOf(limits.ParseAddress(c.RemoteAddr().String()))
}

// closeNow closes a connection without TLS's close_notify, which could block.
func closeNow(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	_ = c.Close()
}

// CloseUnauthorized wraps a handler. The connection closes after a response of 401. Do not use it behind a balancer,
// whose connections carry requests of several clients.
func CloseUnauthorized(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&writer{w}, r) })
}

type writer struct{ http.ResponseWriter }

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(code int) {
	if code == http.StatusUnauthorized {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(code)
}
