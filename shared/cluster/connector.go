package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// connectPatience bounds how long requests wait for the first connection. A busy machine may need seconds for hundreds
// of handshakes.
const connectPatience = 5 * time.Second

// probePatience is how long a probe waits. The other half of health.Timeout is left for a connection of its own.
const probePatience = connectPatience / 2

// connector lets requests that begin at the same time share the first connection, as HTTP/2 permits. net/http opens one
// for each of them. Requests proceed without sharing if the member speaks HTTP/1.1, or if the first attempt fails or
// exceeds patience.
type connector struct {
	next     http.RoundTripper // a transport or a pluginPool
	patience time.Duration
	open     atomic.Int32            // connections
	opening  atomic.Pointer[attempt] // nil if no request opens the first connection
	isHTTP1  atomic.Bool             // the first connection spoke HTTP/1.1, which needs one for each request
}

// attempt is the opening of the first connection.
type attempt struct {
	began     time.Time
	done      chan struct{} // closed at the end
	abandoned bool          // its request ended early; set before done is closed
}

// newConnector makes a transport count its connections in a connector. The caller sets next.
func newConnector(t *http.Transport) *connector {
	c, dial := &connector{patience: connectPatience}, t.DialContext
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
	for {
		current := c.opening.Load()
		if current == nil {
			if c.open.Load() > 0 || c.isHTTP1.Load() {
				return c.next.RoundTrip(r)
			}
			if own := (&attempt{began: time.Now(), done: make(chan struct{})}); c.opening.CompareAndSwap(nil, own) {
				return c.openFirst(r, own)
			}
			continue
		}
		patience := c.patience
		if isProbe(r.Context()) {
			patience = min(patience, probePatience)
		}
		timer := time.NewTimer(time.Until(current.began.Add(patience)))
		select {
		case <-current.done:
			timer.Stop()
			if !current.abandoned {
				return c.next.RoundTrip(r)
			}
		case <-timer.C: // this request may be faster than the first one, which then need not be waited for
			return c.openFirst(r, current)
		case <-r.Context().Done():
			timer.Stop()
			return c.next.RoundTrip(r) // it returns the error of the context
		}
	}
}

// openFirst ends an attempt once the request has a connection, or else with the request.
func (c *connector) openFirst(r *http.Request, a *attempt) (*http.Response, error) {
	end := func(abandoned bool) {
		if c.opening.CompareAndSwap(a, nil) {
			a.abandoned = abandoned
			close(a.done)
		}
	}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c.isHTTP1.Store(!isHTTP2(info.Conn))
		end(false)
	}}
	resp, err := c.next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	end(r.Context().Err() != nil)
	return resp, err
}

// isHTTP2 reports the protocol of a connection in a trace.
func isHTTP2(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
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
