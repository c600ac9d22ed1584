// Package pipetest is for tests of slow clients: a listener for connections that hold nothing, so that what a server writes waits until it
// is read.
package pipetest

import (
	"context"
	"net"
)

// Listener accepts what Hand gives it. It implements net.Listener.
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

// Hand gives the server's end of a connection to who accepts next, and waits for that.
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
