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

// maxInterimResponses is the number of informational responses, such as 103, that may precede the response to a read.
const maxInterimResponses = 5

// ticketTime is how long a read waits for the end of TLS messages that have arrived without a request. TLS 1.3 sends
// session tickets after a handshake, so the first read of a connection waits.
const ticketTime = time.Millisecond

// errNotIdle is the error of a read whose connection ended, or had bytes that no request asked for.
var errNotIdle = errors.New("the idle connection cannot be used")

// readConn is an HTTP/1.1 connection for one read at a time. The goroutine of the read writes the request and reads the
// response itself. The two goroutines of a connection of net/http would wake each other for each small read, which
// costs CPU time.
type readConn struct {
	socket     *conn
	secure     *tls.Conn
	reader     *bufio.Reader // calls Read
	writer     *bufio.Writer
	headerLeft int64 // bytes that Read may return before the end of a header
	unexpected [1]byte
	// stopInterrupt unregisters the interruption by the context of the read. It returns false if that has begun.
	stopInterrupt func() bool

	from       *http.Transport // has its configuration
	generation int             // of its readPool
	// Times of the wall clock, which include sleep of the machine.
	opened time.Time
	used   time.Time // end of the last response
}

// openReadConn connects to address, a host and a port, with the dialer and the TLS configuration of from.
func openReadConn(ctx context.Context, from *http.Transport, address string) (*readConn, error) {
	if from.Proxy != nil {
		return nil, errors.New("connections for reads use no proxy")
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialed, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	socket, ok := dialed.(*conn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the transport dials a %T", dialed), dialed.Close())
	}
	cfg := from.TLSClientConfig.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	c := &readConn{socket: socket, secure: tls.Client(socket, cfg), from: from}
	if err := c.secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	c.reader, c.writer = bufio.NewReaderSize(c, from.ReadBufferSize), bufio.NewWriterSize(c.secure, from.WriteBufferSize)
	c.opened = time.Now().Round(0)
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

// roundTrip sends a read. After a response, the caller calls stopInterrupt. After an error, which is errNotIdle if
// nothing was sent, the caller closes the connection.
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
	deadline := time.Now().Add(c.from.ResponseHeaderTimeout)
	if err := c.secure.SetDeadline(deadline); err != nil || !c.isIdle() {
		return nil, errNotIdle
	}
	if err := c.secure.SetDeadline(deadline); err != nil {
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
	for range maxInterimResponses + 1 {
		resp, err := http.ReadResponse(c.reader, r)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode < http.StatusContinue || resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, fmt.Errorf("the status code %d is no response to a read", resp.StatusCode)
		case resp.StatusCode < http.StatusOK:
		case resp.ContentLength < 0 && len(resp.TransferEncoding) == 0:
			return nil, errors.New("the response ends with its connection, so it would look complete if it breaks off")
		default:
			c.headerLeft = math.MaxInt64
			return resp, c.secure.SetDeadline(time.Time{})
		}
	}
	return nil, fmt.Errorf("more than %d informational responses", maxInterimResponses)
}

// isIdle reports whether the connection is open and has no unsolicited bytes. It does not find a part of a TLS record,
// nor do connections of net/http.
func (c *readConn) isIdle() bool {
	until := time.Unix(1, 0) // finds only what TLS has received before
	if c.socket.isStale() {
		until = time.Now().Add(ticketTime)
	}
	if c.reader.Buffered() > 0 || c.secure.SetReadDeadline(until) != nil {
		return false
	}
	n, err := c.secure.Read(c.unexpected[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}
