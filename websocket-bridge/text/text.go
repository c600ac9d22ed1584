// Package text is the endpoint for browsers and scripts: a websocket with the subprotocol v1.text.clusterpass.io carries watch, logs,
// exec and attach as text messages, at the same URLs as every other client's.
//
// Watch sends one event a message, logs one line a message. Exec and attach send JSON: see messages. What is not UTF-8 comes
// as U+FFFD. Nothing is buffered but a message's beginning.
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
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Protocol is the subprotocol that asks for this endpoint.
const Protocol = "v1.text.clusterpass.io"

// Asked reports whether r is for this endpoint.
func Asked(r *http.Request) bool {
	return websocket.IsWebSocketUpgrade(r) && slices.Contains(websocket.Subprotocols(r), Protocol)
}

// Endpoint answers calls for which Asked is true. It is safe for concurrent use.
type Endpoint struct {
	MaxMessage int64 // from the client, in bytes; 0 means any
	// Carry is forward.Do, or works as that does; what it hijacks of ws is a websocket.
	Carry func(w, ws http.ResponseWriter, r *http.Request, c forward.Call) error
}

// Do answers r. w and ws write to the same client, ws once it has become a websocket.
func (e *Endpoint) Do(w, ws http.ResponseWriter, r *http.Request, c forward.Call) error {
	res := route.ParseResource(r.Method, c.Route.Path, c.Query)
	switch {
	case res.Subresource == "exec" || res.Subresource == "attach":
		return e.session(w, ws, r, c)
	case res.Verb == "watch" || res.Subresource == "log":
		return Answer(w, ws, r, func(w http.ResponseWriter, r *http.Request) error { return forward.Do(w, r, c) },
			e.MaxMessage, Protocol, Lines)
	default:
		return status.New(status.BadRequest, c.Route.Cluster, "the websocket protocol %s serves watch, log, exec and attach",
			Protocol)
	}
}

// accept makes the client's connection a websocket.
func accept(ws http.ResponseWriter, r *http.Request, maxMessage int64, protocol string) (*websocket.Conn, error) {
	u := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		CheckOrigin: func(*http.Request) bool { return true }, // was checked before
		Error:       func(http.ResponseWriter, *http.Request, int, error) {},
	}
	if protocol != "" {
		u.Subprotocols = []string{protocol}
	}
	conn, err := u.Upgrade(ws, r, nil)
	if err != nil {
		return nil, status.New(status.BadRequest, "", "the websocket handshake cannot be understood: %w", err)
	}
	conn.SetReadLimit(maxMessage)
	return conn, nil
}

const (
	bufferSize = 4 << 10
	farewell   = time.Second
)

// Lingering bounds how long a client has to take what it was sent, and to answer a close frame. Until then what it still sends is
// taken: a connection that is closed with bytes unread is reset, and the reset may overtake what was sent.
const Lingering = 30 * time.Second

// plain is r without what makes it a websocket.
func plain(ctx context.Context, r *http.Request) *http.Request {
	r = r.Clone(ctx)
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") || name == "Upgrade" || name == "Connection" || name == "Origin" {
			delete(r.Header, name)
		}
	}
	return r
}

// goodbye ends a websocket with a close frame.
func goodbye(conn *websocket.Conn, code int, why string) {
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, why), time.Now().Add(farewell)) // it may be gone
}

// HearOut hears out a client whose message was too large, for which its websocket was closed. err is what reading ended with.
func HearOut(conn *websocket.Conn, err error) {
	if errors.Is(err, websocket.ErrReadLimit) {
		hearOut(conn)
	}
}

// hearOut takes, for a while, what a client still sends after its websocket was closed for its fault: a connection that is closed with bytes
// unread is reset, and the reset may overtake the close frame.
func hearOut(conn *websocket.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(farewell))
	_, _ = io.Copy(io.Discard, conn.NetConn()) // until the client ends it
}

// session carries exec or attach. The member's side is a websocket too, to this process: so it goes whichever way the member takes.
func (e *Endpoint) session(w, ws http.ResponseWriter, r *http.Request, c forward.Call) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	near, far := pipe()
	defer func() { _ = near.Close() }()
	carried := make(chan error, 1)
	go func() {
		defer func() { _ = far.Close() }()
		defer func() { // an answer that breaks off has no other end here
			if p := recover(); p != nil {
				carried <- status.New(status.Aborted, c.Route.Cluster, "the answer broke off")
			}
		}()
		carried <- e.carry(ctx, w, far, r, c)
	}()
	d := websocket.Dialer{
		NetDialContext:   func(context.Context, string, string) (net.Conn, error) { return near, nil },
		Subprotocols:     []string{"v5.channel.k8s.io", "v4.channel.k8s.io"},
		HandshakeTimeout: 2 * time.Minute, // the member has less
	}
	member, resp, err := d.DialContext(ctx, "ws://member/", nil)
	if err != nil {
		cancel()
		_ = near.Close()
		if cerr := <-carried; cerr != nil || resp == nil {
			return cerr // it has answered, or says why not
		}
		return status.New(status.Aborted, c.Route.Cluster, "cluster %q answers the websocket handshake wrongly",
			c.Route.Cluster)
	}
	_ = resp.Body.Close()
	client, err := accept(ws, r, e.MaxMessage, Protocol)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = client.NetConn().Close() }) // also of a client that takes nothing
		talk(client, member)
		stop()
		_ = client.Close()
	}
	_ = member.Close()
	cancel()
	if cerr := <-carried; err == nil && !errors.Is(cerr, context.Canceled) {
		err = cerr
	}
	return err
}
