package streams

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// ResponseWriter returns a writer that counts the response's bytes and sets a deadline for each write. It does so for a
// hijacked connection, too. The writer of a watch can end the response between two events.
func (s *Stream) ResponseWriter(w http.ResponseWriter) http.ResponseWriter {
	rc := http.NewResponseController(w)
	s.startWriteDeadlines(rc.SetWriteDeadline)
	return &writer{ResponseWriter: w, s: s, rc: rc}
}

// Body returns a body that counts the request's bytes.
func (s *Stream) Body(r io.ReadCloser) io.ReadCloser { return &body{r, s} }

type writer struct {
	http.ResponseWriter
	s  *Stream
	rc *http.ResponseController

	mu        sync.Mutex
	eventEnds boundary // finds the ends of events; nil unless it is a watch whose content type boundaryOf knows
	writing   bool
	ending    *status.Error // reason to end after the current event; nil before finish
	done      bool
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(code int) {
	if code == http.StatusOK && w.s.info.Kind == Watch {
		// If events cannot be separated, setFinish is not called. End then cuts the response, so that it does not look
		// complete.
		if w.eventEnds = boundaryOf(w.Header().Get("Content-Type")); w.eventEnds != nil {
			w.s.setFinish(w.finish)
		}
	}
	w.s.updateDeadline(w.rc.SetWriteDeadline) // the handler may flush before the first write
	w.ResponseWriter.WriteHeader(code)
}

// Write completes the current event of a watch that is ending, and then returns forward.ErrFinished.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return 0, forward.ErrFinished
	}
	if w.eventEnds != nil {
		if end := w.eventEnds.next(p); w.ending != nil && end >= 0 {
			p, w.done = p[:end], true
		}
	}
	w.writing = true
	w.mu.Unlock()

	w.s.updateDeadline(w.rc.SetWriteDeadline)
	n, err := w.ResponseWriter.Write(p)
	w.s.countWritten(n, true, err)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
	if err == nil && w.ending != nil && (w.done || w.eventEnds.isBetweenEvents()) {
		w.stop()
		err = forward.ErrFinished
	}
	return n, err
}

// FlushError flushes the response. A timeout ends the stream, as in Write. net/http may have buffered the last bytes of
// a Write until this flush.
func (w *writer) FlushError() error {
	w.s.updateDeadline(w.rc.SetWriteDeadline)
	err := w.rc.Flush()
	w.s.countWritten(0, false, err)
	return err
}

// finish ends a watch between two events: at once, or in the running or a later Write.
func (w *writer) finish(why *status.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = why
	if !w.writing && w.eventEnds.isBetweenEvents() {
		w.stop()
	}
}

func (w *writer) stop() {
	w.done = true
	w.s.cancel(finishedError{w.ending})
}

// ForWebSocket returns a writer for a handler that upgrades the connection to a websocket itself. w must be a result of
// ResponseWriter. The client gets pings and a close frame. The handler must write the handshake's response in one call.
// Hijack fails if the client has already sent data after its handshake. gorilla would read these from the server's
// buffer, which bypasses the stream and its recorder.
func (s *Stream) ForWebSocket(w http.ResponseWriter) http.ResponseWriter {
	return &websocketWriter{w.(*writer)}
}

type websocketWriter struct{ *writer }

func (w *websocketWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := w.writer.Hijack()
	if err != nil {
		return nil, nil, err
	}
	if rw != nil && rw.Reader.Buffered() > 0 {
		_, _ = io.WriteString(c, earlyData)
		_ = c.Close()
		return nil, nil, errEarlyData
	}
	return c.(*conn).websocket(c, true), rw, nil
}

var errEarlyData = errors.New("the client sent data before the response to its handshake")

// earlyData is the response to such a client.
const earlyData = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n" +
	"wait for the response to the websocket handshake before sending data\n"

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.s.mu.Lock()
	w.s.setWriteDeadline = nil // after a hijack, conn.Write sets the deadlines
	w.s.mu.Unlock()
	return &conn{Conn: c, s: w.s}, rw, nil
}

type conn struct {
	net.Conn
	s *Stream
	// isFramed is set if a wsConn or spdyConn parses the bytes. That connection calls touch for data, but not for
	// keep-alives.
	isFramed bool
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.s.countRead(n, !c.isFramed)
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	c.s.updateDeadline(c.SetWriteDeadline)
	n, err := c.Conn.Write(p)
	c.s.countWritten(n, !c.isFramed, err)
	return n, err
}

func (c *conn) CloseWrite() error { return forward.CloseWrite(c.Conn) }

type body struct {
	io.ReadCloser
	s *Stream
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.s.countRead(n, true)
	return n, err
}
