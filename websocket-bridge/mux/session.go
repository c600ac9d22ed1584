package mux

import (
	"errors"
	"io"
	"log"
	"net"
	"time"

	"github.com/gorilla/websocket"
	"github.com/hashicorp/yamux"
)

const (
	// window is the maximum number of unread bytes of one stream. The reader's end must buffer them.
	window = 512 << 10
	// backlog is the maximum number of streams that wait to be accepted.
	backlog = 1024
	// halfClosed is how long a stream may be closed at one end only.
	halfClosed = time.Minute
)

// ErrCut is the error of reading from a stream after the tunnel has ended.
var ErrCut = errors.New("the tunnel was cut")

// Session is one end of a tunnel, and a net.Listener for the other end's streams. It is safe for concurrent use.
type Session struct{ *yamux.Session }

// Opener returns the bridge's end of a tunnel, which opens streams and resets those of the other end. It owns ws.
func Opener(ws *websocket.Conn) (*Session, error) {
	c := &gated{Conn: newConn(ws), open: make(chan struct{})}
	s, err := yamux.Client(c, config())
	if err != nil {
		return nil, err
	}
	err = s.GoAway() // the other end opens none
	close(c.open)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Session{s}, nil
}

// gated blocks reads until open is closed. yamux starts to read before GoAway, and would accept streams until then.
type gated struct {
	net.Conn
	open chan struct{}
}

func (g *gated) Read(p []byte) (int, error) {
	<-g.open
	return g.Conn.Read(p)
}

// Accepter returns the agent's end of a tunnel, which accepts streams. It owns ws.
func Accepter(ws *websocket.Conn) (*Session, error) {
	s, err := yamux.Server(newConn(ws), config())
	return &Session{s}, err
}

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.EnableKeepAlive = false // the websocket has beats
	c.ConnectionWriteTimeout = writeTimeout
	c.MaxStreamWindowSize = window
	c.StreamOpenTimeout = 0 // the opener has its own deadline; a timeout must not close the session
	c.StreamCloseTimeout = halfClosed
	c.LogOutput, c.Logger = nil, log.New(io.Discard, "", 0) // relevant messages are returned as errors
	return c
}

// Open opens a stream. It does not wait for the other end, and blocks at most until the session ends.
func (s *Session) Open() (net.Conn, error) {
	st, err := s.OpenStream()
	if err != nil {
		return nil, err
	}
	return &stream{st}, nil
}

// Accept implements net.Listener. Its error is never a timeout, after which servers would retry.
func (s *Session) Accept() (net.Conn, error) {
	st, err := s.AcceptStream()
	if err != nil {
		return nil, ErrCut
	}
	return &stream{st}, nil
}

type stream struct{ *yamux.Stream }

// Read distinguishes a cut from the end of the data. yamux reports both as io.EOF.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if errors.Is(err, io.EOF) && s.Session().IsClosed() {
		err = ErrCut
	}
	return n, err
}

// CloseWrite closes the writing half, as yamux's Close does. yamux releases the stream when the other end has closed,
// too.
func (s *stream) CloseWrite() error { return s.Close() }
