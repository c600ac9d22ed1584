package text

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/utf8tail"
)

// Framing is the conversion of a response's body to websocket messages.
type Framing int

// Lines sends each line as text, without its newline. Binary and Base64 send the pieces of the body as they arrive.
const (
	Lines Framing = iota
	Binary
	Base64
)

// Answer calls do for the plain form of a websocket request, and sends its response in messages. Only a 200 upgrades
// the connection. protocol is the accepted subprotocol, or "". w and ws must write to the same client; ws is for the
// websocket.
func Answer(w, ws http.ResponseWriter, r *http.Request, do func(w http.ResponseWriter, r *http.Request) error,
	maxMessage int64, protocol string, framing Framing) (err error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &messageWriter{ResponseWriter: w, framing: framing, accept: func() (*websocket.Conn, error) {
		conn, err := accept(ws, r, maxMessage, protocol)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
			go func() { // waits for the client's close frame; ends with the connection
				for {
					if _, _, err := conn.NextReader(); err != nil {
						cancel()
						return
					}
				}
			}()
		}
		return conn, err
	}}
	whole := false
	defer func() {
		if out.conn != nil {
			out.end(whole)
			_ = out.conn.Close()
		}
	}()
	in := plain(ctx, r)
	in.Header["Accept"] = []string{"application/json"}
	delete(in.Header, "Accept-Encoding")
	err = do(out, in)
	if out.err != nil {
		return out.err
	}
	whole = err == nil
	return err
}

// messageWriter upgrades the connection on a 200 and sends the body in messages. Any other response is sent unchanged.
type messageWriter struct {
	http.ResponseWriter
	framing Framing
	accept  func() (*websocket.Conn, error)
	conn    *websocket.Conn
	err     error
	line    io.WriteCloser // the current message
	tail    []byte         // the start of an incomplete character
}

func (l *messageWriter) WriteHeader(code int) {
	if code != http.StatusOK {
		l.ResponseWriter.WriteHeader(code)
		return
	}
	l.conn, l.err = l.accept()
}

// Flush does nothing, since complete messages are sent at once.
func (l *messageWriter) Flush() {}

func (l *messageWriter) Write(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.conn == nil {
		return l.ResponseWriter.Write(p)
	}
	switch l.framing {
	case Binary:
		return len(p), l.conn.WriteMessage(websocket.BinaryMessage, p)
	case Base64:
		return len(p), l.conn.WriteMessage(websocket.TextMessage, base64.StdEncoding.AppendEncode(nil, p))
	case Lines:
	}
	for rest := p; len(rest) > 0; {
		line, after, end := bytes.Cut(rest, []byte{'\n'})
		if err := l.write(line, end); err != nil {
			return 0, err
		}
		rest = after
	}
	return len(p), nil
}

func (l *messageWriter) write(piece []byte, end bool) (err error) {
	if l.line == nil {
		if l.line, err = l.conn.NextWriter(websocket.TextMessage); err != nil {
			return err
		}
	}
	var text []byte
	text, l.tail = wholeText(append(l.tail, piece...), end)
	if _, err := l.line.Write(text); err != nil {
		return err
	}
	if end {
		err, l.line = l.line.Close(), nil
	}
	return err
}

// end sends the rest of the last line, and a close frame.
func (l *messageWriter) end(whole bool) {
	if l.line != nil {
		_ = l.write(nil, true) // the client may be gone
	}
	if whole {
		sendClose(l.conn, websocket.CloseNormalClosure, "")
	} else {
		sendClose(l.conn, websocket.CloseInternalServerErr, "the response was cut off")
	}
}

// wholeText returns p as valid UTF-8. Unless p is the last piece, an incomplete character at its end becomes tail.
func wholeText(p []byte, last bool) (text, tail []byte) {
	if !last {
		whole := len(p) - utf8tail.Len(p)
		p, tail = p[:whole], bytes.Clone(p[whole:])
	}
	return bytes.ToValidUTF8(p, []byte("\uFFFD")), tail
}
