package gateway

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/clusterpass/clusterpass/shared/forward"
)

type recorder struct {
	http.ResponseWriter
	deadlines *deadlines
	code      int            // 0 until the response begins
	onStart   func(code int) // called with the status code of a stream; nil for other calls
	// sent and received count the bytes of bodies, and all bytes of a hijacked connection.
	sent, received atomic.Int64
}

// Unwrap gives http.ResponseController access to Flush and Hijack.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.start(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) start(code int) {
	w.code = code
	if w.onStart != nil {
		w.onStart(code)
	}
}

// unblocked is a number of bytes. net/http buffers that much of a response until the handler ends or flushes.
const unblocked = 2 << 10

func (w *recorder) Write(p []byte) (n int, err error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	for {
		if w.sent.Load()+int64(len(p)) > unblocked {
			w.deadlines.extendWrite()
		}
		accepted, err := w.ResponseWriter.Write(p[n:min(n+progressSize, len(p))])
		w.sent.Add(int64(accepted))
		if n += accepted; err != nil || n == len(p) {
			return n, err
		}
	}
}

func (w *recorder) FlushError() error {
	w.deadlines.extendWrite()
	return w.deadlines.conn.Flush()
}

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.start(http.StatusSwitchingProtocols)
		w.received.Add(int64(rw.Reader.Buffered())) // already read from the connection
		conn = &countedConn{conn, w}
	}
	return conn, rw, err
}

func (w *recorder) beginStream(c *call) {
	w.onStart = c.audit.Started
	w.deadlines.beginStream()
	c.release()
}

func (w *recorder) end() {
	if w.code != http.StatusSwitchingProtocols { // a hijacked connection is closed
		w.deadlines.end()
	}
}

func (w *recorder) bytesReceived() int64 {
	n := w.received.Load()
	if w.deadlines.body != nil {
		n += w.deadlines.body.bytes()
	}
	return n
}

type countedConn struct {
	net.Conn
	w *recorder
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.w.sent.Add(int64(n))
	return n, err
}

func (c *countedConn) CloseWrite() error { return forward.CloseWrite(c.Conn) }
