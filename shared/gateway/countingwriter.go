package gateway

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/clusterpass/clusterpass/shared/forward"
)

// countingWriter is the http.ResponseWriter of one request. It records the status code, counts bytes, and extends the
// deadline of writes.
type countingWriter struct {
	http.ResponseWriter
	deadlines *deadlines
	code      int            // 0 until the response begins
	onStart   func(code int) // called with the status code of a stream; nil for other calls
	// sent and received count the bytes of bodies, and all bytes of a hijacked connection.
	sent, received atomic.Int64
}

// Unwrap lets http.ResponseController set deadlines and enable full duplex. FlushError and Hijack are methods of w
// itself.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *countingWriter) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.start(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *countingWriter) start(code int) {
	w.code = code
	if w.onStart != nil {
		w.onStart(code)
	}
}

// responseBuffer is the minimum number of bytes of a response that net/http buffers until the handler ends or flushes.
// Writes of these bytes do not block.
const responseBuffer = 2 << 10

func (w *countingWriter) Write(p []byte) (n int, err error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	for {
		if w.sent.Load()+int64(len(p)) > responseBuffer {
			w.deadlines.extendWrite()
		}
		accepted, err := w.ResponseWriter.Write(p[n:min(n+progressSize, len(p))])
		w.sent.Add(int64(accepted))
		if n += accepted; err != nil || n == len(p) {
			return n, err
		}
	}
}

func (w *countingWriter) FlushError() error {
	w.deadlines.extendWrite()
	return w.deadlines.conn.Flush()
}

func (w *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.start(http.StatusSwitchingProtocols)
		w.received.Add(int64(rw.Reader.Buffered())) // already read from the connection
		conn = &countedConn{conn, w}
	}
	return conn, rw, err
}

func (w *countingWriter) beginStream(c *call) {
	w.onStart = c.audit.Started
	w.deadlines.beginStream()
	c.release()
}

func (w *countingWriter) end() {
	if w.code != http.StatusSwitchingProtocols { // a hijacked connection no longer belongs to net/http
		w.deadlines.end()
	}
}

func (w *countingWriter) bytesReceived() int64 {
	n := w.received.Load()
	if w.deadlines.body != nil {
		n += w.deadlines.body.bytes()
	}
	return n
}

type countedConn struct {
	net.Conn
	w *countingWriter
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
