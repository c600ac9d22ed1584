package tunnel

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"
)

// linger is how long one direction may go on when the other has ended. (What runs here is TLS, of which neither end goes on for long when
// the other has said goodbye.)
const linger = 30 * time.Second

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// Pipe carries bytes between a and b until both directions have ended, or one has failed, and closes both. What was cut at one side is
// cut at the other. Deadlines are for whoever ends the connections: a tunnel does not know how long what it carries may be silent.
func Pipe(a, b net.Conn) {
	defer func() { _, _ = a.Close(), b.Close() }()
	ended := make(chan error, 2)
	go func() { ended <- carry(a, b) }()
	go func() { ended <- carry(b, a) }()
	if err := <-ended; err != nil {
		cut(a)
		cut(b)
	} else {
		late := time.AfterFunc(linger, func() { cut(a); cut(b) })
		defer late.Stop()
	}
	<-ended
}

// carry copies until src ends, and tells dst of it.
func carry(dst, src net.Conn) error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	// Neither side's own way of copying, which would make buffers of its own.
	if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, *buf); err != nil {
		return err
	}
	return dst.(interface{ CloseWrite() error }).CloseWrite() // TCP, TLS and streams have it
}

// cut makes reads and writes fail that wait, and has closing say to the other end that this was no good end.
func cut(c net.Conn) {
	_ = c.SetDeadline(time.Unix(1, 0))
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}
