package streams

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/websocket-bridge/frames"
)

func (c *conn) Switch(protocol string, client net.Conn) net.Conn {
	c.isFramed = true
	if protocol == forward.SPDY {
		return &spdyConn{Conn: client, s: c.s}
	}
	return c.websocket(client, false)
}

// websocket parses the frames of a websocket. If awaitsHandshake is set, the first write is the handshake's response.
func (c *conn) websocket(client net.Conn, awaitsHandshake bool) net.Conn {
	c.isFramed = true
	ws := &wsConn{Conn: client, s: c.s, last: time.Now(), awaitsHandshake: awaitsHandshake}
	c.s.setFinish(ws.endWithCloseFrame)
	if d := c.s.registry.cfg.PingPeriod; d > 0 {
		// ping uses ws.timer, so the timer must not expire before the assignment.
		ws.timer = time.AfterFunc(time.Hour, func() { ws.ping(d) })
		ws.timer.Reset(d)
		context.AfterFunc(c.s.ctx, func() { ws.timer.Stop() })
	}
	return ws
}

// spdyConn is a SPDY connection whose pings do not reset the idle timeout.
type spdyConn struct {
	net.Conn
	s       *Stream
	in, out frames.SPDY
}

func (c *spdyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.touchOnData(&c.in, p[:n])
	return n, err
}

func (c *spdyConn) Write(p []byte) (int, error) {
	c.touchOnData(&c.out, p)
	return c.Conn.Write(p)
}

func (c *spdyConn) touchOnData(f *frames.SPDY, p []byte) {
	for len(p) > 0 {
		n, _ := f.Next(p)
		p = p[n:]
		if !f.IsPing() {
			c.s.touch()
		}
	}
}

func (c *spdyConn) CloseWrite() error { return forward.CloseWrite(c.Conn) }

// pingPayload marks the bridge's own pings, whose pongs are not forwarded.
var pingPayload = []byte("clusterpass")

// wsConn is the client's side of a websocket. Between two frames from the member it sends pings and the close frame.
type wsConn struct {
	net.Conn
	s *Stream

	mu              sync.Mutex // guards writes
	awaitsHandshake bool       // the next write is the handshake's response
	out             frames.WebSocket
	last            time.Time // time of the last write
	timer           *time.Timer
	ending          *status.Error // reason for which the registry ends the stream; nil before
	closeSent       bool          // the member or the bridge has sent a close frame; later writes are dropped

	in    frames.WebSocket
	pong  []byte // an incomplete pong
	ready []byte // bytes to return by Read
}

func (c *wsConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeSent {
		return len(p), nil // the client ignores data after a close frame
	}
	if c.awaitsHandshake {
		c.awaitsHandshake = false
		return c.Conn.Write(p)
	}
	whole := p
	if c.ending == nil {
		for rest := p; len(rest) > 0; {
			n, end := c.out.Next(rest)
			rest = rest[n:]
			if c.out.Opcode() < frames.Close {
				c.s.touch()
			}
			c.closeSent = c.closeSent || end && c.out.Opcode() == frames.Close
		}
	} else { // until the end of the current frame
		n, end := c.out.Next(p)
		p = p[:n]
		c.closeSent = end // unless this frame is a close frame, writeClose sends one below
	}
	c.last = time.Now()
	if n, err := c.Conn.Write(p); err != nil {
		return n, err
	}
	if c.ending != nil && c.closeSent {
		c.writeClose()
	}
	return len(whole), nil
}

func (c *wsConn) ping(period time.Duration) {
	if c.s.ctx.Err() != nil {
		return
	}
	wait := period
	if c.mu.TryLock() { // otherwise a write is in progress
		if silent := time.Since(c.last); silent < period {
			wait = period - silent
		} else if c.out.Between() && !c.awaitsHandshake && !c.closeSent && c.ending == nil {
			if _, err := c.Conn.Write(frames.Control(frames.Ping, pingPayload)); err != nil {
				c.s.cancel(context.Canceled) // the client is gone, which a reader might not notice
			}
			c.last = time.Now()
		}
		c.mu.Unlock()
	}
	c.timer.Reset(wait)
}

// closeTimeout is the time for a client to respond to a close frame.
const closeTimeout = time.Second

// endWithCloseFrame sends a close frame after the current frame. It cancels the stream if it cannot send one, because
// of a missing handshake or an earlier close frame.
func (c *wsConn) endWithCloseFrame(why *status.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = why
	if c.closeSent || c.awaitsHandshake {
		c.s.cancel(why)
	} else if c.out.Between() {
		c.closeSent = true
		c.writeClose()
	}
}

// goingAway means that the server ends the connection (RFC 6455, section 7.4.1).
var goingAway = []byte{1001 >> 8, 1001 & 0xff}

// writeClose sends a close frame, unless the last frame was a close frame of the member. It cancels the stream after
// closeTimeout. c.mu must be locked, and closeSent set.
func (c *wsConn) writeClose() {
	if c.out.Opcode() != frames.Close {
		message := c.ending.Message
		// Invalid UTF-8 would make the client fail.
		message = strings.ToValidUTF8(message[:min(len(message), 125-len(goingAway))], "")
		payload := append(bytes.Clone(goingAway), message...)
		_, _ = c.Conn.Write(frames.Control(frames.Close, payload)) // the client may be gone
	}
	time.AfterFunc(closeTimeout, func() { c.s.cancel(c.ending) })
}

// Read omits responses to the bridge's own pings.
func (c *wsConn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		n, err := c.Conn.Read(p)
		if n > 0 && !c.extractPongs(p[:n]) {
			return n, err
		}
		if err != nil && len(c.ready) == 0 {
			return 0, err
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// extractPongs parses p. If p contains parts of pongs, it stores the bytes to return in ready and returns true.
func (c *wsConn) extractPongs(p []byte) bool {
	pongs := len(c.pong) > 0
	c.ready = c.ready[:0]
	for at := 0; at < len(p); {
		n, end := c.in.Next(p[at:])
		piece := p[at : at+n]
		op := c.in.Opcode()
		if op < frames.Close {
			c.s.touch()
		}
		if op == frames.Pong && len(c.pong) <= maxControl {
			if !pongs { // bytes before the first pong pass
				pongs = true
				c.ready = append(c.ready, p[:at]...)
			}
			c.pong = append(c.pong, piece...)
			if end && bytes.Equal(frames.ControlPayload(c.pong), pingPayload) {
				c.pong = c.pong[:0]
			} else if end {
				c.ready = append(c.ready, c.pong...)
				c.pong = c.pong[:0]
			}
		} else if pongs {
			c.ready = append(append(c.ready, c.pong...), piece...)
			c.pong = c.pong[:0]
		}
		at += n
	}
	return pongs
}

// maxControl is the maximum size in bytes of a masked control frame. Read passes a longer pong, which is malformed.
const maxControl = 2 + 4 + 125

func (c *wsConn) CloseWrite() error { return forward.CloseWrite(c.Conn) }
