// Package conns bounds the connections of an HTTP server that carry no request.
//
//   - [Idle] closes connections that are too many: in all, and of one source address.
//   - [CloseUnauthorized] closes the connections of clients without a valid credential.
//
// Invariants:
//   - A connection with a request in progress is never closed.
//   - The longest idle connection of a source closes first, so a client that connects anew is served.
package conns

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/clusterpass/clusterpass/shared/limits"
)

// Idle closes connections without a request beyond a limit. Zero limits mean none. Call Track from
// http.Server.ConnState. It is safe for concurrent use.
type Idle struct {
	Max          int // in all; the source with the most idle connections loses its oldest
	MaxPerSource int // of one source; connections of unknown sources are not limited by it

	mu       sync.Mutex
	open     map[net.Conn]*list.Element
	bySource map[limits.Source]*list.List // of net.Conn, the longest idle first
}

// Track records the state of a connection, and may close another one.
func (i *Idle) Track(c net.Conn, state http.ConnState) {
	if excess := i.update(c, state); excess != nil {
		closeNow(excess)
	}
}

// update returns a connection that is to be closed, or nil.
func (i *Idle) update(c net.Conn, state http.ConnState) net.Conn {
	source := sourceOf(c)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove(c, source)
	if state != http.StateNew && state != http.StateIdle {
		return nil
	}
	if i.open == nil {
		i.open, i.bySource = map[net.Conn]*list.Element{}, map[limits.Source]*list.List{}
	}
	if i.bySource[source] == nil {
		i.bySource[source] = list.New()
	}
	i.open[c] = i.bySource[source].PushBack(c)
	switch {
	case i.MaxPerSource > 0 && source.IsKnown() && i.bySource[source].Len() > i.MaxPerSource:
	case i.Max > 0 && len(i.open) > i.Max:
		source = i.largest()
	default:
		return nil
	}
	oldest := i.bySource[source].Front().Value.(net.Conn)
	i.remove(oldest, source)
	return oldest
}

func (i *Idle) remove(c net.Conn, source limits.Source) {
	element, ok := i.open[c]
	if !ok {
		return
	}
	delete(i.open, c)
	idle := i.bySource[source]
	if idle.Remove(element); idle.Len() == 0 {
		delete(i.bySource, source)
	}
}

// largest returns the source with the most idle connections.
func (i *Idle) largest() limits.Source {
	var largest limits.Source
	most := 0
	for source, idle := range i.bySource {
		if idle.Len() > most {
			largest, most = source, idle.Len()
		}
	}
	return largest
}

func sourceOf(c net.Conn) limits.Source {
	if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return limits.SourceOf(addr.AddrPort().Addr())
	}
	return limits.SourceOf(limits.ParseAddress(c.RemoteAddr().String()))
}

// closeNow closes a connection without the farewell of TLS, which could block.
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

// Unwrap lets http.ResponseController reach Flush, Hijack and deadlines.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(code int) {
	if code == http.StatusUnauthorized {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(code)
}
