// Package dialect translates websocket requests for members that refuse websockets. Exec, attach and port-forward
// become SPDY. Watches and logs become plain HTTP.
//
// A side that does not read blocks the other. Only the final Status of exec and attach is buffered.
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
	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

const (
	maxNeeded = 1024
	neededTTL = 5 * time.Minute
)

// Translator translates requests, and remembers which members need SPDY. It is safe for concurrent use.
type Translator struct {
	maxMessage int64
	// needed contains the members that need SPDY. The keys are CLUSTER/SUBRESOURCE, or CLUSTER/tunnel.
	needed *cache.Expiring[string, struct{}]
}

// New returns a Translator that accepts messages of up to maxMessage bytes from clients. 0 means no limit.
func New(maxMessage int64) *Translator {
	return &Translator{maxMessage, cache.NewExpiring[string, struct{}](maxNeeded, nil)}
}

// Do works like forward.Do, and translates the request if the member refuses the client's websocket. It then hijacks
// the client's connection through ws. Both w and ws must write to that client.
func (t *Translator) Do(w, ws http.ResponseWriter, r *http.Request, c *forward.Call) error {
	if !websocket.IsWebSocketUpgrade(r) {
		return forward.Do(w, r, c)
	}
	return t.translate(w, ws, r, c)
}

func (t *Translator) translate(w, ws http.ResponseWriter, r *http.Request, c *forward.Call) error {
	offered := websocket.Subprotocols(r)
	s := &session{maxMessage: t.maxMessage, w: w, ws: ws, r: r, call: *c}
	var translated func() (done bool, err error) // sends the request as SPDY or plain HTTP
	kind := c.Resource.Subresource
	switch {
	case kind == "exec" || kind == "attach":
		s.protocol = firstOf(offered, channels.Protocols)
		s.copyStreams, s.upstream, translated = s.exec, "v4.channel.k8s.io", s.bySPDY
	case kind == "portforward" && slices.Contains(offered, tunnel):
		s.protocol, kind = tunnel, "tunnel"
		s.copyStreams, s.upstream, translated = s.tunnel, portForward, s.bySPDY
	case kind == "portforward":
		s.protocol = firstOf(offered, portProtocols)
		if s.ports = portsOf(c.Query); s.ports != nil {
			s.copyStreams, s.upstream, translated = s.forwardPorts, portForward, s.bySPDY
		}
	case kind == "log":
		s.protocol, s.framing, translated = firstOf(offered, logProtocols), text.Binary, s.byPlainHTTP
		if s.protocol == logBase64 {
			s.framing = text.Base64
		}
	case c.Resource.Verb == "watch" && len(offered) <= 1: // kube-apiserver accepts any single protocol
		s.protocol, s.framing, translated = strings.Join(offered, ""), text.Lines, s.byPlainHTTP
	}
	if translated == nil || s.protocol == "" && len(offered) > 0 {
		return forward.Do(w, r, c)
	}
	key := c.Route.Cluster + "/" + kind
	if _, ok := t.needed.Get(key); ok {
		if done, err := translated(); done || err != nil {
			return err
		}
		t.needed.Remove(key) // the entry is wrong or outdated
	}
	remember := func() { t.needed.Add(key, struct{}{}, time.Now().Add(neededTTL)) }
	call := *c
	call.Fallback = &fallback{session: s, translated: translated, remember: remember}
	return forward.Do(w, r, &call)
}

// fallback translates a request after the member has refused the client's websocket.
type fallback struct {
	session    *session
	translated func() (done bool, err error)
	remember   func() // records that the member needs SPDY
}

func (f *fallback) ServeRefused(resp *http.Response, by *cluster.Member) (done bool, err error) {
	if slices.Contains(protocolIndependent, resp.StatusCode) {
		return false, nil
	}
	f.session.call.Member = by
	if concernsAllCallers(resp) {
		f.session.onSwitched = f.remember
	}
	return f.translated()
}

// protocolIndependent are status codes that a member also sends for the translated request.
var protocolIndependent = []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests}

// concernsAllCallers reports whether a refusal suggests that the member refuses the websockets of all callers. Failures
// of the server may be temporary, and refusals by the member's authorizer concern one caller.
func concernsAllCallers(refusal *http.Response) bool {
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

type session struct {
	maxMessage int64
	w, ws      http.ResponseWriter
	r          *http.Request
	call       forward.Call
	protocol   string // the client's protocol, or "" if the client offered none
	upstream   string // the member's SPDY protocol
	// copyStreams copies data between the client and the member's SPDY connection until the session ends.
	copyStreams func(ctx context.Context, client *websocket.Conn, member io.ReadWriteCloser)
	onSwitched  func()       // optional: bySPDY calls it after both sides have switched protocols
	ports       []uint16     // only for a port-forward with channels
	framing     text.Framing // only for byPlainHTTP
}

var logProtocols = []string{"binary.k8s.io", logBase64}

const logBase64 = "base64.binary.k8s.io"

func (s *session) byPlainHTTP() (done bool, err error) {
	call := s.call
	call.Request = call.WithoutUpgrade()
	do := func(w http.ResponseWriter, r *http.Request) error { return forward.Do(w, r, &call) }
	return true, text.Answer(s.w, s.ws, s.r, do, s.maxMessage, s.protocol, s.framing)
}

// bySPDY sends the request as SPDY. It returns done == false if the member refuses SPDY, too. The client then gets the
// member's response to the websocket request.
func (s *session) bySPDY() (done bool, err error) {
	resp, call, err := forward.Dial(s.spdyRequest(), &s.call, forward.SPDY)
	if err != nil {
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "application/json" ||
			resp.StatusCode == http.StatusBadRequest {
			return false, nil // the refusal concerns SPDY
		}
		return true, forward.Answer(s.w, s.r, resp, call)
	}
	member := resp.Body.(io.ReadWriteCloser) // forward.Dial has checked the type
	upgrader := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second,
		// A ReadBufferSize above 0 stops gorilla from reading the connection through the server's buffer, which bypasses
		// s.ws.
		ReadBufferSize: 4 << 10, WriteBufferSize: bufferSize, WriteBufferPool: &messageBuffers,
		CheckOrigin: func(*http.Request) bool { return true }, // checked by the gateway
		Error:       func(http.ResponseWriter, *http.Request, int, error) {},
	}
	if s.protocol != "" {
		upgrader.Subprotocols = []string{s.protocol}
	}
	client, err := upgrader.Upgrade(s.ws, s.r, s.ws.Header())
	if err != nil {
		return true, badHandshake(err)
	}
	if s.onSwitched != nil {
		s.onSwitched()
	}
	defer func() { _ = client.Close() }()
	stop := context.AfterFunc(s.r.Context(), func() { _ = client.Close(); _ = member.Close() })
	defer stop()
	client.SetReadLimit(s.maxMessage)
	s.copyStreams(s.r.Context(), client, member)
	return true, nil
}

// bufferSize is the size in bytes of a channel's number and a piece of binary data. gorilla splits larger messages,
// such as those in base64, into several frames.
const bufferSize = maxPiece + 1

var messageBuffers sync.Pool

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
