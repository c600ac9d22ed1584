package main

import (
	"net"
	"sync"
	"time"
)

// delayedListener accepts connections over a network. latency is that of one direction.
type delayedListener struct {
	net.Listener
	latency time.Duration
}

// Accept implements net.Listener.
func (l delayedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newDelayedConn(c, l.latency), nil
}

// delayedConn is a connection whose bytes arrive after its latency, in both directions. Its rate has no limit, and its
// deadlines do nothing. Close loses bytes that have not arrived.
type delayedConn struct {
	net.Conn
	latency time.Duration
	in, out chan packet
	closed  chan struct{}
	close   func() error

	rest packet // the part of the last packet that was not read yet
}

// packet is what arrives at a time: bytes, or the end of the connection.
type packet struct {
	due  time.Time
	data []byte
	err  error
}

// inFlight is the number of packets in each direction. Those of TLS have 16 KiB and less.
const inFlight = 1024

func newDelayedConn(c net.Conn, latency time.Duration) net.Conn {
	d := &delayedConn{
		Conn: c, latency: latency, in: make(chan packet, inFlight), out: make(chan packet, inFlight),
		closed: make(chan struct{}),
	}
	d.close = sync.OnceValue(func() error {
		close(d.closed)
		return c.Close()
	})
	go d.receive()
	go d.send()
	return d
}

func (d *delayedConn) receive() {
	for {
		buf := make([]byte, 16<<10)
		n, err := d.Conn.Read(buf)
		select {
		case d.in <- packet{time.Now().Add(d.latency), buf[:n], err}:
		case <-d.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (d *delayedConn) send() {
	for {
		select {
		case p := <-d.out:
			if !d.await(p) {
				return
			}
			if _, err := d.Conn.Write(p.data); err != nil {
				_ = d.close() // so that further writes fail
				return
			}
		case <-d.closed:
			return
		}
	}
}

// await waits until a packet arrives, and reports whether it does.
func (d *delayedConn) await(p packet) bool {
	left := time.Until(p.due)
	if left <= 0 {
		return true
	}
	select {
	case <-time.After(left):
		return true
	case <-d.closed:
		return false
	}
}

// Read implements net.Conn.
func (d *delayedConn) Read(p []byte) (int, error) {
	if len(d.rest.data) == 0 && d.rest.err == nil {
		select {
		case d.rest = <-d.in:
		case <-d.closed:
			return 0, net.ErrClosed
		}
		if !d.await(d.rest) {
			return 0, net.ErrClosed
		}
	}
	n := copy(p, d.rest.data)
	d.rest.data = d.rest.data[n:]
	if len(d.rest.data) == 0 {
		return n, d.rest.err
	}
	return n, nil
}

// Write implements net.Conn. It blocks while too many bytes are in flight.
func (d *delayedConn) Write(p []byte) (int, error) {
	select {
	case d.out <- packet{due: time.Now().Add(d.latency), data: append([]byte(nil), p...)}:
		return len(p), nil
	case <-d.closed:
		return 0, net.ErrClosed
	}
}

// Close implements net.Conn.
func (d *delayedConn) Close() error { return d.close() }

// SetDeadline implements net.Conn.
func (*delayedConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (*delayedConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (*delayedConn) SetWriteDeadline(time.Time) error { return nil }
