package gateway

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/clusterpass/clusterpass/shared/forward"
)

// recorder remembers what was answered, and counts what was carried.
type recorder struct {
	http.ResponseWriter
	pace           *pace
	code           int
	started        func(code int) // called with the head of a stream; nil for other calls
	sent, received atomic.Int64   // bytes of the bodies, and of an upgraded connection all after the client's head
}

// Unwrap lets http.ResponseController reach Flush and Hijack.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if w.code == 0 && code >= 200 || code == http.StatusSwitchingProtocols {
		w.code = code
		if w.started != nil {
			w.started(code)
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Hijack implements http.Hijacker: what follows is the other protocol's.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.code = http.StatusSwitchingProtocols
		if w.started != nil {
			w.started(w.code)
		}
		w.received.Add(int64(rw.Reader.Buffered())) // read from the connection already
		conn = &countedConn{conn, w}
	}
	return conn, rw, err
}

// FlushError implements what http.ResponseController looks for.
func (w *recorder) FlushError() error {
	w.pace.writes()
	return w.pace.conn.Flush()
}

// carried leaves a call to the carrier of a stream, which counts it.
func (w *recorder) carried(c *call) {
	w.started = c.audit.Started
	w.pace.carried()
	c.leave()
}

// end is called when all is done.
func (w *recorder) end() {
	if w.code != http.StatusSwitchingProtocols { // else who hijacked the connection has closed it
		w.pace.end()
	}
}

func (w *recorder) bytesReceived() int64 {
	n := w.received.Load()
	if w.pace.body != nil {
		n += w.pace.body.bytes()
	}
	return n
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	w.pace.writes()
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

// countedConn counts what a hijacked connection carries.
type countedConn struct {
	net.Conn
	w *recorder
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.received.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.w.sent.Add(int64(n))
	return n, err
}

// CloseWrite ends the writing half, where the connection has halves.
func (c *countedConn) CloseWrite() error { return forward.CloseWrite(c.Conn) }
