package tunnel

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
	// window is how many bytes of one stream may be on their way, which its reader's end holds in memory if need be.
	window = 512 << 10
	// backlog is how many streams may be on their way to being accepted.
	backlog = 1024
	// halfClosed is how long a stream may be closed at one end only.
	halfClosed = time.Minute
)

// ErrCut is why reading from a stream fails whose tunnel has ended.
var ErrCut = errors.New("the tunnel was cut")

// Session is one end of a tunnel. It is safe for concurrent use. It is a net.Listener of the streams that the other end opens.
type Session struct{ *yamux.Session }

// Opener returns the end of a tunnel that opens streams, the bridge's. It owns ws. It resets streams that the other end
// opens.
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

// gated is a connection that is read once open is closed. yamux begins to read before GoAway, and would accept a stream
// that the other end opens until then.
type gated struct {
	net.Conn
	open chan struct{}
}

// Read implements net.Conn.
func (g *gated) Read(p []byte) (int, error) {
	<-g.open
	return g.Conn.Read(p)
}

// Accepter returns the end of a tunnel that accepts streams, the agent's. It owns ws.
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
	c.StreamOpenTimeout = 0 // who opens a stream has a deadline, which is no reason to end the others
	c.StreamCloseTimeout = halfClosed
	c.LogOutput, c.Logger = nil, log.New(io.Discard, "", 0) // what matters comes back as errors
	return c
}

// Open opens a stream. It waits for no answer, and at most until the session ends.
func (s *Session) Open() (net.Conn, error) {
	st, err := s.OpenStream()
	if err != nil {
		return nil, err
	}
	return &stream{st}, nil
}

// Accept implements net.Listener. Its error is final: servers would try again after one that says that time ran out.
func (s *Session) Accept() (net.Conn, error) {
	st, err := s.AcceptStream()
	if err != nil {
		return nil, ErrCut
	}
	return &stream{st}, nil
}

// stream is a connection through the tunnel.
type stream struct{ *yamux.Stream }

// Read implements net.Conn. yamux takes the end of a session for the end of what was sent.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if errors.Is(err, io.EOF) && s.Session().IsClosed() {
		err = ErrCut
	}
	return n, err
}

// CloseWrite says that no more will be written; yamux's Close closes no more than that, and the rest when the other end has closed, too.
func (s *stream) CloseWrite() error { return s.Close() }
