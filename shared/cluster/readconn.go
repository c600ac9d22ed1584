package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"time"
)

// maxInterim is the number of informational responses, such as 103, that may precede the response to a read.
const maxInterim = 5

// maxTicketWait bounds how long the opening of a connection waits for session tickets.
const maxTicketWait = time.Second

// readConn is an HTTP/1.1 connection for one read at a time. The goroutine of the read writes the request and reads the
// response itself. The two goroutines of a connection of net/http would wake each other for each small read, which
// costs more CPU time than the read.
type readConn struct {
	conn       net.Conn // without TLS
	secure     *tls.Conn
	reader     *bufio.Reader // calls Read
	writer     *bufio.Writer
	headerLeft int64 // bytes that Read may return before the end of a header
	probe      [1]byte
	// stopInterrupt ends the interruption of the connection by its request's context. It returns false if that has begun.
	stopInterrupt func() bool

	from       *http.Transport
	generation int
	opened     time.Time // with used, of the wall clock, which goes on while the machine sleeps
	used       time.Time // its last response was complete
}

// openReadConn connects to address, which is a host and a port, as the transport would.
func openReadConn(ctx context.Context, from *http.Transport, address string) (*readConn, error) {
	began := time.Now()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	cfg := from.TLSClientConfig.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	c := &readConn{conn: conn, secure: tls.Client(conn, cfg), from: from}
	c.reader, c.writer = bufio.NewReaderSize(c, from.ReadBufferSize), bufio.NewWriterSize(c.secure, from.WriteBufferSize)
	if err := c.secure.HandshakeContext(ctx); err != nil {
		_ = c.secure.Close()
		return nil, err
	}
	if p := c.secure.ConnectionState().NegotiatedProtocol; p != "" && p != "http/1.1" {
		_ = c.secure.Close()
		return nil, fmt.Errorf("the server chose protocol %q", p)
	}
	// TLS 1.3 sends session tickets after the handshake. They arrive within a round trip, and the opening had several.
	opened := time.Now()
	if !c.isSilentUntil(opened.Add(min(opened.Sub(began), maxTicketWait))) {
		_ = c.secure.Close()
		return nil, errors.New("the server sent bytes before any request, or closed the connection")
	}
	c.opened = opened.Round(0)
	return c, nil
}

// Read implements io.Reader. It counts the bytes of a header.
func (c *readConn) Read(b []byte) (int, error) {
	if c.headerLeft <= 0 {
		return 0, errors.New("the header of the response is too large")
	}
	n, err := c.secure.Read(b[:min(int64(len(b)), c.headerLeft)])
	c.headerLeft -= int64(n)
	return n, err
}

// roundTrip sends a read. After a response, the caller calls stopInterrupt. After an error, it closes the connection.
func (c *readConn) roundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	c.stopInterrupt = context.AfterFunc(ctx, func() { _ = c.secure.SetDeadline(time.Unix(1, 0)) })
	resp, err := c.exchange(r)
	if cause := context.Cause(ctx); cause != nil {
		err = cause // exchange may have replaced the deadline of the interruption
	}
	if err != nil {
		c.stopInterrupt()
		return nil, err
	}
	return resp, nil
}

// exchange writes the request and reads the response up to its body.
func (c *readConn) exchange(r *http.Request) (*http.Response, error) {
	if err := c.secure.SetDeadline(time.Now().Add(c.from.ResponseHeaderTimeout)); err != nil {
		return nil, err
	}
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	if err := r.Write(c.writer); err != nil {
		return nil, err
	}
	if err := c.writer.Flush(); err != nil {
		return nil, err
	}
	c.headerLeft = c.from.MaxResponseHeaderBytes
	for range maxInterim + 1 {
		resp, err := http.ReadResponse(c.reader, r)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server switches protocols without a request")
		case resp.ContentLength < 0 && len(resp.TransferEncoding) == 0:
			return nil, errors.New("the response ends with its connection, so it would look complete if it breaks off")
		case resp.StatusCode >= http.StatusOK:
			c.headerLeft = math.MaxInt64
			return resp, c.secure.SetDeadline(time.Time{})
		}
	}
	return nil, fmt.Errorf("more than %d informational responses", maxInterim)
}

// isIdle reports whether the connection is open, and has no bytes that no request asked for.
func (c *readConn) isIdle() bool {
	socket, ok := c.conn.(*conn)
	return ok && !socket.isStale() && c.reader.Buffered() == 0 && c.isSilentUntil(time.Unix(1, 0))
}

// isSilentUntil reports whether no data arrive before t. If t has passed, it finds only what TLS has already received.
func (c *readConn) isSilentUntil(t time.Time) bool {
	if err := c.secure.SetReadDeadline(t); err != nil {
		return false
	}
	n, err := c.secure.Read(c.probe[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}
