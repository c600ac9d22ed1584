// Package tunnel is what carries the connections of private clusters, at both ends: streams of yamux in one websocket.
//
// Invariants:
//   - A stream has a window of its own: a slow reader holds up its own stream and no other.
//   - Each end hears of the other every few seconds, whatever else there is to send. Silence ends the websocket, so that a network that
//     swallows packets is noticed within Silence.
//   - Neither end can make the other hold more than its windows: streams are opened by one end alone, and what neither end sends ends the
//     websocket.
//   - When the websocket ends, so does every stream, with an error: nothing that was cut looks whole.
package tunnel

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// How silence is noticed. Beats are pongs that nobody asked for (RFC 6455, 5.5.3), which want no answer: an end whose way out is full of
// data still hears the other's.
const (
	beat = 3 * time.Second
	// Silence is how long an end may hear nothing before it gives the other up.
	Silence = 10 * time.Second
	// writeTimeout bounds one message. A way that is alive takes one sooner, however slow it is.
	writeTimeout = time.Minute
)

// bufferSize is that of a websocket's buffers in bytes.
const bufferSize = 32 << 10

var buffers = &sync.Pool{}

// NewDialer returns a dialer of websockets for the carrier.
func NewDialer() *websocket.Dialer {
	return &websocket.Dialer{
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, WriteBufferPool: buffers, HandshakeTimeout: 10 * time.Second,
	}
}

// NewUpgrader returns an upgrader to websockets for the carrier. It is for programs, and refuses browsers, which name an origin.
func NewUpgrader() *websocket.Upgrader {
	return &websocket.Upgrader{
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, WriteBufferPool: buffers, HandshakeTimeout: 10 * time.Second,
	}
}

// conn makes a websocket the byte stream that yamux wants. One goroutine may read and one may write, as yamux does.
type conn struct {
	ws      *websocket.Conn
	message io.Reader // that is being read
	header  []byte    // of a frame to write whose body is yet to come
	frames  frames    // that are read
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
			// Behind data that is being written it waits. Where that takes too long, the other end hears the data.
			_ = c.ws.WriteControl(websocket.PongMessage, nil, time.Now().Add(Silence))
		}
	}
}

// Read implements net.Conn.
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
				return 0, errors.New("tunnel: a text message")
			}
			c.message = r
		}
		n, err := c.message.Read(p)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
		}
		if err := c.frames.see(p[:n]); err != nil {
			return 0, err // without what led to it
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// yamux writes the header of a frame and then its body. Its headers have 12 bytes: version, type (0 is data), flags, stream, and length.
const (
	headerSize = 12
	dataFrame  = 0
	pingFrame  = 2
)

// frames follows the frames of a byte stream.
type frames struct {
	header []byte // as far as it has come
	body   uint32 // bytes of a body that are yet to come
}

// see takes the next bytes. It refuses pings, which neither end sends: yamux answers each in a goroutine of its own, however many wait.
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
			return errors.New("tunnel: a ping, which neither end sends")
		}
		f.header = f.header[:0]
	}
	return nil
}

// Write implements net.Conn. A header that a body follows waits for it, so that both are one message.
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

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed.Do(func() { close(c.stop) })
	return c.ws.Close()
}

// What else net.Conn has, for yamux to tell of. The deadlines are the carrier's own.
func (c *conn) LocalAddr() net.Addr            { return c.ws.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr           { return c.ws.RemoteAddr() }
func (*conn) SetDeadline(time.Time) error      { return nil }
func (*conn) SetReadDeadline(time.Time) error  { return nil }
func (*conn) SetWriteDeadline(time.Time) error { return nil }
