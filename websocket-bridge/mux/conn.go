// Package mux multiplexes connections to private clusters over one websocket between bridge and agent, with yamux.
//
// Invariants:
//   - Each stream has its own window, so a slow reader blocks only its own stream.
//   - Each side closes the websocket after it has received nothing for the time [Silence]. This detects a network that
//     drops all packets.
//   - Each side buffers at most one window of unread bytes for each stream, and closes the websocket after data beyond
//     the window.
//   - Only the bridge opens streams, and resets any stream that the agent opens.
//   - Each side closes the websocket after a text message or a ping frame of yamux.
//   - When the websocket ends, every stream ends with an error, so that cut data does not look complete.
package mux

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// beat is the interval at which each side sends a beat. A beat is an unsolicited pong (RFC 6455, 5.5.3). If data
	// blocks one direction of the connection, beats in the other direction still arrive. A ping and the response would
	// need both directions.
	beat = 3 * time.Second
	// Silence is how long a side may receive nothing before that side closes the websocket.
	Silence = 10 * time.Second
	// writeTimeout is the deadline of one message. It is generous for slow networks.
	writeTimeout = time.Minute
)

const bufferSize = 32 << 10

var buffers = &sync.Pool{}

// NewDialer returns a dialer for the websockets of tunnels.
func NewDialer() *websocket.Dialer {
	return &websocket.Dialer{
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, WriteBufferPool: buffers, HandshakeTimeout: 10 * time.Second,
	}
}

// NewUpgrader returns an upgrader for the websockets of tunnels. It refuses every request with an Origin header,
// because browsers send that header for each websocket and agents do not.
func NewUpgrader() *websocket.Upgrader {
	return &websocket.Upgrader{
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, WriteBufferPool: buffers, HandshakeTimeout: 10 * time.Second,
		CheckOrigin: func(r *http.Request) bool { return len(r.Header["Origin"]) == 0 },
	}
}

// conn adapts a websocket to the byte stream that yamux needs. At most one goroutine may read and one may write.
type conn struct {
	ws      *websocket.Conn
	message io.Reader // the message being read
	header  []byte    // the header of a frame whose body is not written yet, or nil
	frames  frames    // checks the received frames
	closed  sync.Once
	stop    chan struct{}
}

func newConn(ws *websocket.Conn) *conn {
	c := &conn{ws: ws, stop: make(chan struct{})}
	ws.SetReadLimit(1 << 20)
	heard := func(string) error { return ws.SetReadDeadline(time.Now().Add(Silence)) }
	ws.SetPongHandler(heard)
	ws.SetPingHandler(heard)
	go c.beat()
	return c
}

func (c *conn) beat() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
			// A beat waits for data that is being written. The other side then receives the data instead.
			_ = c.ws.WriteControl(websocket.PongMessage, nil, time.Now().Add(Silence))
		}
	}
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		if err := c.ws.SetReadDeadline(time.Now().Add(Silence)); err != nil {
			return 0, err
		}
		if c.message == nil {
			kind, r, err := c.ws.NextReader()
			if err != nil {
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("tunnel: the other end sent a text message; tunnels have only binary ones")
			}
			c.message = r
		}
		n, err := c.message.Read(p)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
		}
		if err := c.frames.see(p[:n]); err != nil {
			return 0, err // yamux must not receive the refused frame
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// yamux writes the header of a frame before its body. A header has 12 bytes: version, type (0 is data), flags, stream
// and length.
const (
	headerSize = 12
	dataFrame  = 0
	pingFrame  = 2
)

type frames struct {
	header []byte // received part of a header
	body   uint32 // remaining bytes of a body
}

// see parses the next bytes. It returns an error for a ping, because neither side of a tunnel sends pings. yamux would
// answer each ping in a new goroutine, without a limit.
func (f *frames) see(p []byte) error {
	for len(p) > 0 {
		if f.body > 0 {
			n := min(len(p), int(f.body))
			f.body -= uint32(n)
			p = p[n:]
			continue
		}
		n := min(len(p), headerSize-len(f.header))
		f.header, p = append(f.header, p[:n]...), p[n:]
		if len(f.header) < headerSize {
			return nil
		}
		switch f.header[1] {
		case dataFrame:
			f.body = binary.BigEndian.Uint32(f.header[8:])
		case pingFrame:
			return errors.New("tunnel: the other end sent a ping of yamux; tunnels have none")
		}
		f.header = f.header[:0]
	}
	return nil
}

// Write joins a header and its body in one message.
func (c *conn) Write(p []byte) (int, error) {
	if c.header == nil && len(p) == headerSize && p[1] == dataFrame && binary.BigEndian.Uint32(p[8:]) > 0 {
		c.header = append([]byte(nil), p...)
		return len(p), nil
	}
	if err := c.ws.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	w, err := c.ws.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return 0, err
	}
	if c.header != nil {
		_, err = w.Write(c.header)
		c.header = nil
	}
	n := 0
	if err == nil {
		n, err = w.Write(p)
	}
	return n, errors.Join(err, w.Close())
}

func (c *conn) Close() error {
	c.closed.Do(func() { close(c.stop) })
	return c.ws.Close()
}

// Read and Write set the deadlines of the websocket, so yamux cannot set any.
func (c *conn) LocalAddr() net.Addr            { return c.ws.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr           { return c.ws.RemoteAddr() }
func (*conn) SetDeadline(time.Time) error      { return nil }
func (*conn) SetReadDeadline(time.Time) error  { return nil }
func (*conn) SetWriteDeadline(time.Time) error { return nil }
