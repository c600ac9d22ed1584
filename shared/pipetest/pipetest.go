// Package pipetest has a listener whose connections have no buffer: each write blocks until the client reads.
package pipetest

import (
	"context"
	"net"
)

// Listener accepts the connections that are passed to Hand. It implements net.Listener.
type Listener struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

// Listen returns a Listener.
func Listen() *Listener {
	l := &Listener{conns: make(chan net.Conn)}
	l.closed, l.close = context.WithCancel(context.Background())
	return l
}

// Hand passes the server's end of a connection to the next Accept, and blocks until then.
func (l *Listener) Hand(c net.Conn) { l.conns <- c }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener.
func (*Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
