// Package dialect translates websocket requests for members that refuse websockets. Exec, attach and port-forward
// become SPDY. Watches and logs become plain HTTP.
//
// Each channel of the client's websocket is a stream of the member's SPDY connection. Nothing is buffered: a side that
// does not read blocks the other.
package dialect

import (
	"context"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// memory is the number of members that a Translator remembers, for memoryTTL each.
const (
	memory    = 1024
	memoryTTL = 5 * time.Minute
)

// Translator remembers which members need translation. It is safe for concurrent use.
type Translator struct {
	maxMessage int64
	needed     *cache.Expiring[string, struct{}] // by cluster/subresource
}

// New returns a Translator that accepts messages of up to maxMessage bytes from clients. 0 means no limit.
func New(maxMessage int64) *Translator {
	return &Translator{maxMessage, cache.NewExpiring[string, struct{}](memory, nil)}
}

// Do works like forward.Do, and translates the request if the member refuses the client's websocket. It then hijacks
// the connection through ws, which must write to the same client as w.
func (t *Translator) Do(w, ws http.ResponseWriter, r *http.Request, c forward.Call) error {
	offered := websocket.Subprotocols(r)
	s := &session{maxMessage: t.maxMessage, w: w, ws: ws, r: r, call: c}
	var other func() (done bool, err error) // the translated alternative
	kind := c.Resource.Subresource
	switch {
	case !websocket.IsWebSocketUpgrade(r):
		return forward.Do(w, r, c)
	case kind == "exec" || kind == "attach":
		s.protocol = firstOf(offered, execProtocols)
		s.carry, s.upstream, other = s.exec, "v4.channel.k8s.io", s.translate
	case kind == "portforward" && slices.Contains(offered, tunnel):
		s.protocol, kind = tunnel, "tunnel"
		s.carry, s.upstream, other = s.tunnel, portForward, s.translate
	case kind == "portforward":
		s.protocol = firstOf(offered, portProtocols)
		if s.ports = portsOf(c.Query); s.ports != nil {
			s.carry, s.upstream, other = s.forwardPorts, portForward, s.translate
		}
	case kind == "log":
		s.protocol, s.framing, other = firstOf(offered, logProtocols), text.Binary, s.plain
		if s.protocol == logBase64 {
			s.framing = text.Base64
		}
	case c.Resource.Verb == "watch" && len(offered) <= 1: // kube-apiserver accepts any single protocol
		s.protocol, s.framing, other = strings.Join(offered, ""), text.Lines, s.plain
	}
	if other == nil || s.protocol == "" && len(offered) > 0 {
		return forward.Do(w, r, c)
	}
	key := c.Route.Cluster + "/" + kind
	if _, ok := t.needed.Get(key); ok {
		if done, err := other(); done || err != nil {
			return err
		}
		t.needed.Remove(key) // the entry is wrong or outdated
	}
	remember := func() { t.needed.Add(key, struct{}{}, time.Now().Add(memoryTTL)) }
	c.Fallback = &fallback{session: s, translate: other, remember: remember}
	return forward.Do(w, r, c)
}

// fallback translates a request after the member has refused the client's websocket. It implements forward.Fallback.
type fallback struct {
	session   *session
	translate func() (done bool, err error)
	remember  func() // records that the member needs translation
}

// ServeRefused implements forward.Fallback.
func (f *fallback) ServeRefused(resp *http.Response, by *cluster.Member) (done bool, err error) {
	if slices.Contains(final, resp.StatusCode) {
		return false, nil
	}
	f.session.call.Member = by
	if aboutDialect(resp) {
		f.session.switched = f.remember
	}
	return f.translate()
}

// final are status codes that do not depend on the protocol.
var final = []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests}

// aboutDialect reports whether the refusal of a websocket may concern websockets in general, and so other callers.
// Server failures and refusals by the member's authorizer do not.
func aboutDialect(refusal *http.Response) bool {
	media, _, _ := mime.ParseMediaType(refusal.Header.Get("Content-Type"))
	return refusal.StatusCode < http.StatusInternalServerError &&
		(refusal.StatusCode != http.StatusForbidden || media != "application/json")
}

func firstOf(offered []string, known []string) string {
	for _, p := range offered {
		if slices.Contains(known, p) {
			return p
		}
	}
	return ""
}

// session is one translated request.
type session struct {
	maxMessage int64
	w, ws      http.ResponseWriter
	r          *http.Request
	call       forward.Call
	protocol   string // the client's protocol; "" if it offered none
	upstream   string // the member's SPDY protocol
	carry      func(ctx context.Context, client *websocket.Conn, member io.ReadWriteCloser)
	switched   func()       // called after both sides have switched; nil if that is no evidence about the member
	ports      []uint16     // only for a port-forward with channels
	framing    text.Framing // only for a plain response
}

// logProtocols are the websocket protocols of a followed log. The first is the default.
var logProtocols = []string{"binary.k8s.io", logBase64}

const logBase64 = "base64.binary.k8s.io"

// plain sends the request by plain HTTP. The result is always final.
func (s *session) plain() (done bool, err error) {
	call := s.call
	call.Request = call.WithoutUpgrade()
	do := func(w http.ResponseWriter, r *http.Request) error { return forward.Do(w, r, call) }
	return true, text.Answer(s.w, s.ws, s.r, do, s.maxMessage, s.protocol, s.framing)
}

// translate sends the request by SPDY. It returns false if the member's response to the websocket is more useful.
func (s *session) translate() (done bool, err error) {
	resp, answered, err := forward.Dial(s.spdyRequest(), s.call, forward.SPDY)
	if err != nil {
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "application/json" ||
			resp.StatusCode == http.StatusBadRequest {
			return false, nil // the refusal concerns SPDY
		}
		return true, forward.Answer(s.w, s.r, resp, answered)
	}
	member := resp.Body.(io.ReadWriteCloser) // verified by forward.Dial
	upgrader := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second,
		// A pooled write buffer, not the server's: the hijacked connection is read through s.ws.
		ReadBufferSize: 4 << 10, WriteBufferSize: bufferSize, WriteBufferPool: &messageBuffers,
		CheckOrigin: func(*http.Request) bool { return true }, // checked by the gateway
		Error:       func(http.ResponseWriter, *http.Request, int, error) {},
	}
	if s.protocol != "" {
		upgrader.Subprotocols = []string{s.protocol}
	}
	client, err := upgrader.Upgrade(s.ws, s.r, nil)
	if err != nil {
		return true, badHandshake(err)
	}
	if s.switched != nil {
		s.switched()
	}
	defer func() { _ = client.Close() }()
	stop := context.AfterFunc(s.r.Context(), func() { _ = client.Close(); _ = member.Close() })
	defer stop()
	client.SetReadLimit(s.maxMessage)
	s.carry(s.r.Context(), client, member)
	return true, nil
}

// bufferSize is the size in bytes of the largest message with its channel.
const bufferSize = maxPiece + 1

var messageBuffers sync.Pool

// spdyRequest returns the client's request as a request for SPDY.
func (s *session) spdyRequest() *http.Request {
	r := s.r.Clone(s.r.Context())
	r.Method = http.MethodPost
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") || name == "Origin" {
			delete(r.Header, name)
		}
	}
	r.Header["X-Stream-Protocol-Version"] = []string{s.upstream}
	return r
}
