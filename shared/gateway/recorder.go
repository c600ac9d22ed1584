package gateway

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/clusterpass/clusterpass/shared/forward"
)

// recorder is the http.ResponseWriter of a call. It records the status code, counts bytes, and sets write deadlines.
type recorder struct {
	http.ResponseWriter
	deadlines *deadlines
	code      int            // 0 until the response begins
	onStart   func(code int) // called with the status code of a stream; nil for other calls
	// sent and received count the bytes of bodies, and all bytes of a hijacked connection after the request's header.
	sent, received atomic.Int64
}

// Unwrap gives http.ResponseController access to Flush and Hijack.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.start(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// start records the status code of the final response.
func (w *recorder) start(code int) {
	w.code = code
	if w.onStart != nil {
		w.onStart(code)
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	w.deadlines.extendWrite()
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

// FlushError implements the interface that http.ResponseController uses.
func (w *recorder) FlushError() error {
	w.deadlines.extendWrite()
	return w.deadlines.conn.Flush()
}

// Hijack implements http.Hijacker. It counts what follows as the traffic of another protocol.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.start(http.StatusSwitchingProtocols)
		w.received.Add(int64(rw.Reader.Buffered())) // already read from the connection
		conn = &countedConn{conn, w}
	}
	return conn, rw, err
}

// beginStream ends the limits of ordinary calls. Streams have their own.
func (w *recorder) beginStream(c *call) {
	w.onStart = c.audit.Started
	w.deadlines.beginStream()
	c.release()
}

// end sets the deadlines for the rest of the response, which net/http writes after the handler has returned.
func (w *recorder) end() {
	if w.code != http.StatusSwitchingProtocols { // a hijacked connection is closed
		w.deadlines.end()
	}
}

// bytesReceived returns the number of bytes of the request's body, or of a hijacked connection.
func (w *recorder) bytesReceived() int64 {
	n := w.received.Load()
	if w.deadlines.body != nil {
		n += w.deadlines.body.bytes()
	}
	return n
}

// countedConn is a hijacked connection whose bytes a recorder counts.
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

// CloseWrite closes the writing half, if the connection has halves.
func (c *countedConn) CloseWrite() error { return forward.CloseWrite(c.Conn) }
