package cluster

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// connectPatience bounds how long a request waits for the first connection of another one.
const connectPatience = time.Second

// connector lets requests that begin at the same time share the first connection, as HTTP/2 permits. net/http opens one
// for each of them. If another request opens the first connection, a request waits until that is open or has failed.
type connector struct {
	next    http.RoundTripper             // the transport, or what uses it or its clones
	open    atomic.Int32                  // connections
	opening atomic.Pointer[chan struct{}] // is closed at the end of the attempt; nil without one
}

// newConnector makes a transport count its connections in a connector, whose next is to be set.
func newConnector(t *http.Transport) *connector {
	c, dial := &connector{}, t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.open.Add(1)
		return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { c.open.Add(-1) })}, nil
	}
	return c
}

// RoundTrip implements http.RoundTripper.
func (c *connector) RoundTrip(r *http.Request) (*http.Response, error) {
	attempt := c.opening.Load()
	if attempt == nil && c.open.Load() == 0 {
		own := make(chan struct{})
		if c.opening.CompareAndSwap(nil, &own) {
			return c.openFirst(r, own)
		}
		attempt = c.opening.Load() // nil if it has just ended
	}
	if attempt != nil {
		late := time.NewTimer(connectPatience)
		defer late.Stop()
		select {
		case <-*attempt:
		case <-late.C:
		case <-r.Context().Done(): // next returns its error
		}
	}
	return c.next.RoundTrip(r)
}

// openFirst closes done once the request has a connection, or else at its end.
func (c *connector) openFirst(r *http.Request, done chan struct{}) (*http.Response, error) {
	end := sync.OnceFunc(func() {
		c.opening.Store(nil)
		close(done)
	})
	defer end()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { end() }}
	return c.next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

type countedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
