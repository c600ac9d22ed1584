package recorder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/recorder/decode"
)

// writer observes the response to the request of a session, and the connection after the handshake.
type writer struct {
	http.ResponseWriter
	s         *Session
	own       http.Header // the header before the request was forwarded
	isRefused bool
}

func newWriter(w http.ResponseWriter, s *Session) *writer {
	return &writer{ResponseWriter: w, s: s, own: w.Header().Clone()}
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader refuses a success without a switch of protocols if the recording is required. The body of such a response
// would be a session that nothing records.
func (w *writer) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.s.code.CompareAndSwap(0, int32(code))
	}
	if code >= 200 && code < 300 && w.s.info.Kind != recording.PortForward {
		w.s.fail(errHandshake)
		if w.isRefused = w.s.state.Load() == isEnding; w.isRefused {
			clear(w.Header())
			maps.Copy(w.Header(), w.own)
			return
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.s.code.Load() == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.isRefused {
		return 0, errEnding
	}
	return w.ResponseWriter.Write(p)
}

// FlushError implements the interface of http.ResponseController.
func (w *writer) FlushError() error {
	if w.isRefused {
		return errEnding
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &conn{Conn: c, s: w.s, head: []byte{}}, rw, nil
}

// conn is the client's side of a session. Its first writes are the response to the handshake.
type conn struct {
	net.Conn
	s *Session
	// isReplaced is set before another conn on top of this one is used, which then records.
	isReplaced bool

	mu      sync.Mutex // guards writes
	head    []byte     // the response to the handshake so far; nil once it is complete
	decoder decode.Decoder
	isOver  bool // the last frames were sent; later writes are dropped
	rest    int  // bytes of the member's incomplete frame that passed after the recorder failed
}

const (
	// maxHead is the maximum size in bytes of the response to the handshake.
	maxHead = 64 << 10
	// maxRest is how many bytes of an incomplete frame may pass after the recorder failed. They are not recorded.
	maxRest = 64 << 10
)

var (
	errHandshake = errors.New("the response to the handshake of the session cannot be understood")
	errEnding    = errors.New("the session is ending")
)

// Switch implements forward.Switcher. The bytes of client include those that the server has already read.
func (c *conn) Switch(protocol string, client net.Conn) net.Conn {
	if s, ok := c.Conn.(forward.Switcher); ok {
		client = s.Switch(protocol, client)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isReplaced = true
	top := &conn{Conn: client, s: c.s, isOver: c.isOver}
	if c.decoder != nil {
		top.decoder = c.decoder.ForMember()
	}
	c.s.setConn(top)
	return top
}

func (s *Session) setConn(c *conn) {
	s.mu.Lock()
	s.conn = c
	s.mu.Unlock()
}

func (c *conn) CloseWrite() error { return forward.CloseWrite(c.Conn) }

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if n == 0 || c.isReplaced {
			return n, err
		}
		c.s.in.Add(int64(n))
		if c.decoder != nil && c.s.state.Load() == isRecording {
			if derr := c.decoder.FromClient(p[:n]); derr != nil {
				c.s.fail(derr)
				c.endBetweenFrames()
			}
		}
		if c.s.state.Load() != isEnding {
			return n, err
		}
		if err != nil {
			return 0, err
		}
		// The member gets no more input, while the client reads the last frames.
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if c.isReplaced {
		return c.Conn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if c.head != nil {
		end, err := c.readHead(p)
		if err != nil {
			return 0, err
		}
		if n, err = c.Conn.Write(p[:end]); err != nil || n == len(p) {
			return n, err
		}
	}
	m, err := c.writeData(p[n:])
	return n + m, err
}

// writeData writes bytes after the handshake. It records them before the client gets them.
func (c *conn) writeData(p []byte) (int, error) {
	whole := len(p)
	if c.isOver {
		return whole, nil
	}
	if c.decoder != nil {
		p = c.decode(p)
	}
	if len(p) > 0 {
		n, err := c.Conn.Write(p)
		c.s.out.Add(int64(n))
		if err != nil {
			return n, err
		}
	}
	c.endLocked()
	return whole, nil
}

// decode returns the part of p that the client may get.
func (c *conn) decode(p []byte) []byte {
	switch c.s.state.Load() {
	case isRecording:
		n, err := c.decoder.FromMember(p)
		if err == nil {
			return p
		}
		c.s.fail(err)
		if c.s.state.Load() == isEnding {
			return c.passRest(p[:n])
		}
	case isEnding:
		return c.passRest(p[:c.decoder.Rest(p)])
	}
	return p
}

// passRest returns the part of p that the client may get of an incomplete frame. If it is longer than maxRest, passRest
// ends the session without the last frames.
func (c *conn) passRest(p []byte) []byte {
	p = p[:min(len(p), maxRest-c.rest)]
	if c.rest += len(p); c.rest == maxRest {
		c.isOver = true
		c.s.endAfter(0)
	}
	return p
}

// endBetweenFrames sends the last frames if the recorder has failed, unless the member's current frame is incomplete.
func (c *conn) endBetweenFrames() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *conn) endLocked() {
	if c.s.state.Load() != isEnding || c.isOver || c.isReplaced || c.decoder == nil || !c.decoder.IsBetween() {
		return
	}
	c.isOver = true
	st := c.s.reason().Status()
	text, err := json.Marshal(&st)
	if err == nil {
		// The client may be gone.
		_, _ = c.Conn.Write(c.decoder.Farewell(c.messageChannel(), "\r\n"+farewell+"\r\n", text))
	}
	c.s.endAfter(closeTimeout)
}

// messageChannel returns the channel for a message to a person. Without a terminal, stdout may be a file.
func (c *conn) messageChannel() int {
	if c.s.info.TTY {
		return channels.Stdout
	}
	if route.Truthy(c.s.call.Query, "stderr") {
		return channels.Stderr
	}
	return decode.None
}

// readHead reads the response to the handshake, and prepares the decoder after it. It returns how many bytes of p
// belong to the response.
func (c *conn) readHead(p []byte) (n int, err error) {
	before := len(c.head)
	c.head = append(c.head, p[:min(len(p), maxHead-before)]...)
	_, _, isComplete := bytes.Cut(c.head, []byte("\r\n\r\n"))
	if !isComplete && len(c.head) < maxHead {
		return len(p), nil
	}
	if isComplete {
		n = bytes.Index(c.head, []byte("\r\n\r\n")) + 4 - before
		err = c.begin(c.head[:before+n])
	} else {
		n, err = len(p), errHandshake
	}
	c.head = nil
	if err != nil {
		c.s.fail(err)
	}
	if c.s.state.Load() == isEnding {
		return 0, errEnding
	}
	c.s.setConn(c)
	return n, nil
}

func (c *conn) begin(head []byte) error {
	if c.s.info.Kind == recording.PortForward {
		return nil
	}
	text := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	if line, err := text.ReadLine(); err != nil || !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		return errHandshake
	}
	header, err := text.ReadMIMEHeader()
	if err != nil || header.Get("Sec-Websocket-Extensions") != "" {
		return errHandshake
	}
	options := decode.Options{WithoutInput: !c.s.info.RecordsInput}
	switch upgraded := header.Get("Upgrade"); {
	case strings.EqualFold(upgraded, forward.WebSocket):
		c.decoder, err = decode.NewWebSocket(header.Get("Sec-Websocket-Protocol"), options, c.s.rec)
	case strings.EqualFold(upgraded, forward.SPDY):
		c.decoder = decode.NewSPDY(options, c.s.rec)
	default:
		err = errHandshake
	}
	return err
}

// status returns what the member sent on the error channel. No other method may run.
func (c *conn) status() []byte {
	if c.decoder == nil {
		return nil
	}
	return c.decoder.Status()
}
