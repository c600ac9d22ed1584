// Package text is the endpoint for browsers and scripts. A websocket with the subprotocol v1.text.clusterpass.io
// transfers watches, logs, exec and attach as text messages.
//
// A watch sends one event per message, and logs send one line. Exec and attach send JSON, see input and output. Invalid
// UTF-8 becomes U+FFFD. Watches and logs buffer only incomplete characters; exec and attach one message of each side.
package text

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Protocol is the subprotocol of this endpoint.
const Protocol = "v1.text.clusterpass.io"

// IsRequested reports whether r offers Protocol.
func IsRequested(r *http.Request) bool {
	return websocket.IsWebSocketUpgrade(r) && slices.Contains(websocket.Subprotocols(r), Protocol)
}

// Endpoint serves requests for which IsRequested returns true. It is safe for concurrent use.
type Endpoint struct {
	MaxMessage int64 // maximum size of a client's message in bytes; 0 means no limit
	Upgrades   Forwarder
}

// Forwarder forwards requests that switch protocols. It is safe for concurrent use.
type Forwarder interface {
	// Do works like forward.Do. It hijacks the connection of ws for a websocket.
	Do(w, ws http.ResponseWriter, r *http.Request, c *forward.Call) error
}

// Do serves r. w and ws must write to the same client, and ws is used for the websocket.
func (e *Endpoint) Do(w, ws http.ResponseWriter, r *http.Request, c *forward.Call) error {
	switch res := c.Resource; {
	case res.Subresource == "exec" || res.Subresource == "attach":
		return e.session(w, ws, r, c)
	case res.Verb == "watch" || res.Subresource == "log":
		plain := *c
		plain.Request = c.WithoutUpgrade()
		return Answer(w, ws, r, func(w http.ResponseWriter, r *http.Request) error { return forward.Do(w, r, &plain) },
			e.MaxMessage, Protocol, Lines)
	default:
		return status.New(status.BadRequest, c.Route.Cluster, "the websocket protocol %s serves watch, log, exec and attach",
			Protocol)
	}
}

func accept(ws http.ResponseWriter, r *http.Request, maxMessage int64, protocol string) (*websocket.Conn, error) {
	u := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		CheckOrigin: func(*http.Request) bool { return true }, // checked by the gateway
		Error:       func(http.ResponseWriter, *http.Request, int, error) {},
	}
	if protocol != "" {
		u.Subprotocols = []string{protocol}
	}
	conn, err := u.Upgrade(ws, r, ws.Header())
	if err != nil {
		return nil, status.New(status.BadRequest, "", "the websocket handshake cannot be understood: %w", err)
	}
	conn.SetReadLimit(maxMessage)
	return conn, nil
}

const (
	bufferSize   = 4 << 10
	closeTimeout = time.Second
)

// LingerTimeout is the time for a client to read the rest of the data and to respond to a close frame. Closing a
// connection with unread bytes resets it, and the reset may overtake the data.
const LingerTimeout = 30 * time.Second

func plain(ctx context.Context, r *http.Request) *http.Request {
	r = r.Clone(ctx)
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") || name == "Upgrade" || name == "Connection" || name == "Origin" {
			delete(r.Header, name)
		}
	}
	return r
}

func sendClose(conn *websocket.Conn, code int, why string) {
	// The client may be gone.
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, why), time.Now().Add(closeTimeout))
}

// ReadOversized reads the rest of a client's message if err is websocket.ErrReadLimit.
func ReadOversized(conn *websocket.Conn, err error) {
	if errors.Is(err, websocket.ErrReadLimit) {
		readRest(conn)
	}
}

// readRest discards data that a client sends after its websocket was closed. Closing a connection with unread bytes
// resets it, and the reset may overtake the close frame.
func readRest(conn *websocket.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
	_, _ = io.Copy(io.Discard, conn.NetConn()) // until the client ends it
}

// session serves exec or attach by a websocket within this process, so that e.Upgrades may translate it to any
// protocol.
func (e *Endpoint) session(w, ws http.ResponseWriter, r *http.Request, c *forward.Call) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	near, far := pipe()
	defer func() { _ = near.Close() }()
	forwarded := make(chan error, 1)
	go func() {
		defer func() { _ = far.Close() }()
		defer func() { // the panic of a cut response
			if p := recover(); p != nil {
				forwarded <- status.New(status.Aborted, c.Route.Cluster, "the response was cut off")
			}
		}()
		forwarded <- e.forwardHandshake(ctx, w, far, r, c)
	}()
	d := websocket.Dialer{
		NetDialContext:   func(context.Context, string, string) (net.Conn, error) { return near, nil },
		Subprotocols:     []string{"v5.channel.k8s.io", "v4.channel.k8s.io"},
		HandshakeTimeout: 2 * time.Minute, // longer than the member's deadline
		WriteBufferSize:  bufferSize,
	}
	member, resp, err := d.DialContext(ctx, "ws://member/", nil)
	if err != nil {
		cancel()
		_ = near.Close()
		if cerr := <-forwarded; cerr != nil || resp == nil {
			return cerr // the response is sent, or cerr explains its absence
		}
		return status.New(status.Aborted, c.Route.Cluster, "cluster %q answers the websocket handshake wrongly",
			c.Route.Cluster)
	}
	_ = resp.Body.Close()
	client, err := accept(ws, r, e.MaxMessage, Protocol)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = client.NetConn().Close() }) // also ends a client that does not read
		talk(client, member)
		stop()
		_ = client.Close()
	}
	_ = member.Close()
	cancel()
	if cerr := <-forwarded; err == nil && !errors.Is(cerr, context.Canceled) {
		err = cerr
	}
	return err
}
