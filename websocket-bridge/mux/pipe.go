package mux

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"
)

// linger is how long one direction may continue after the other. TLS needs little time after its close message.
const linger = 30 * time.Second

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// Pipe copies bytes between a and b until both directions have ended, or one has failed, and closes both. A cut on one
// side becomes a cut on the other. Only the endpoints know how long traffic may pause, so there is no idle deadline.
func Pipe(a, b net.Conn) {
	defer func() { _, _ = a.Close(), b.Close() }()
	ended := make(chan error, 2)
	go func() { ended <- copyOneWay(a, b) }()
	go func() { ended <- copyOneWay(b, a) }()
	if err := <-ended; err != nil {
		cut(a)
		cut(b)
	} else {
		late := time.AfterFunc(linger, func() { cut(a); cut(b) })
		defer late.Stop()
	}
	<-ended
}

func copyOneWay(dst, src net.Conn) error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	// This hides ReadFrom and WriteTo, which would allocate their own buffers.
	if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, *buf); err != nil {
		return err
	}
	return dst.(interface{ CloseWrite() error }).CloseWrite() // TCP, TLS and streams have it
}

// cut fails blocked reads and writes, and makes the later Close reset a TCP connection.
func cut(c net.Conn) {
	_ = c.SetDeadline(time.Unix(1, 0))
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}
