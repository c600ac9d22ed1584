package forward

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
)

// The protocols that a connection may switch to.
const (
	WebSocket = "websocket"
	SPDY      = "SPDY/3.1"
)

// Switcher is implemented by hijacked connections that look into what they carry once they have switched protocols. Switch
// returns what is used in place of client, which is the connection without what was read of it already.
type Switcher interface {
	Switch(protocol string, client net.Conn) net.Conn
}

// upgradeProtocol returns the protocol that r asks to switch to: WebSocket, SPDY, or "" for none. Others, such as
// h2c, would open a connection that nobody looks into.
func upgradeProtocol(h http.Header) (string, error) {
	if len(h["Upgrade"]) == 0 {
		return "", nil
	}
	asked := false
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			asked = asked || strings.EqualFold(strings.TrimSpace(token), "Upgrade")
		}
	}
	for _, known := range []string{WebSocket, SPDY} {
		if len(h["Upgrade"]) == 1 && strings.EqualFold(h["Upgrade"][0], known) && asked {
			return known, nil
		}
	}
	return "", status.New(status.BadRequest, "", "upgrade to %q is not supported; use websocket or SPDY/3.1 with Connection: Upgrade",
		strings.Join(h["Upgrade"], ", "))
}

// Dial asks the member to switch to protocol, whatever r itself asks for, and returns its answer: 101, with a body that is an
// io.ReadWriteCloser, or any other but a redirect. The Call is that which was answered: its Member may be a renewed one.
func Dial(r *http.Request, c Call, protocol string) (*http.Response, Call, error) {
	resp, c, err := open(r, c, protocol)
	if err == nil {
		if err = checkSwitch(resp, c, protocol); err != nil {
			_ = resp.Body.Close()
		}
	}
	if err != nil {
		return nil, c, err
	}
	return resp, c, nil
}

// Answer gives the client a member's answer that is not 101, as Do does.
func Answer(w http.ResponseWriter, r *http.Request, resp *http.Response, c Call) error {
	return answer(w, r, resp, c)
}

func checkSwitch(resp *http.Response, c Call, protocol string) error {
	name := c.Member.Cluster.Name
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return status.New(status.BadRedirect, name, "cluster %q redirects an upgrade; the gateway does not follow", name)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if _, ok := resp.Body.(io.ReadWriteCloser); !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), protocol) {
			return status.New(status.Aborted, name, "cluster %q switched to another protocol than asked", name)
		}
	}
	return nil
}

// upgrade passes on the member's answer to an upgrade and then bytes, both ways, until both sides have ended.
func upgrade(w http.ResponseWriter, r *http.Request, resp *http.Response, c Call, protocol string) error {
	if err := checkSwitch(resp, c, protocol); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if c.Refused != nil {
			if done, err := c.Refused(resp, c.Member); done || err != nil {
				return err
			}
		}
		return answer(w, r, resp, c)
	}
	member := resp.Body.(io.ReadWriteCloser) // checkSwitch has seen to it
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return &status.Error{Reason: status.Internal, Message: "this door cannot switch protocols; call the URL under /bridge", Err: err}
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Time{}) // what the server set for the request
	header := responseHeader(resp.Header)
	header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	head := &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header}
	if err := head.Write(client); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	var carried net.Conn = newBufferedConn(client, buffered.Reader)
	if s, ok := client.(Switcher); ok {
		carried = s.Switch(protocol, carried)
	}
	pipe(r.Context(), carried, member)
	return nil
}

// bufferedConn reads what the HTTP server had read ahead before the rest of the connection.
type bufferedConn struct {
	net.Conn
	r io.Reader
}

// newBufferedConn takes the bytes out of ahead: read through it, the end of the client's half would end the request's
// context, and with it the other half.
func newBufferedConn(c net.Conn, ahead *bufio.Reader) *bufferedConn {
	first, _ := ahead.Peek(ahead.Buffered()) // never fails for what is buffered
	return &bufferedConn{c, io.MultiReader(bytes.NewReader(first), c)}
}

// Read implements io.Reader.
func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends the writing half.
func (c *bufferedConn) CloseWrite() error { return CloseWrite(c.Conn) }

// lingering bounds how long the client's half stays open after the member has ended.
const lingering = 30 * time.Second

// pipe copies both ways. The end of one direction is passed on as a half-close, so that what is still on its way in the
// other arrives; an error, or the end of ctx, closes both. But a member that takes nothing more may still have something to say: of a
// command that ended before its input, the exit code. What the client sends is dropped then.
func pipe(ctx context.Context, client net.Conn, member io.ReadWriteCloser) {
	shut := func() { _ = client.Close(); _ = member.Close() }
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	defer shut()
	clientDone := make(chan struct{})
	go func() {
		defer close(clientDone)
		taken, err := copyHalf(member, client)
		if !taken {
			_, err = io.Copy(io.Discard, client)
		}
		if err != nil {
			shut()
		}
	}()
	if taken, err := copyHalf(client, member); !taken || err != nil {
		shut()
	}
	late := time.AfterFunc(lingering, shut) // also of a member that does not read
	defer late.Stop()
	<-clientDone
}

// copyHalf copies until src ends, and tells dst. It reports whether dst took all that came, and how reading failed.
func copyHalf(dst io.Writer, src io.Reader) (taken bool, err error) {
	buf := newBuffer()
	defer buf.release()
	for {
		n, err := src.Read(buf.space())
		if n > 0 {
			if _, werr := dst.Write(buf.space()[:n]); werr != nil {
				return false, nil
			}
		}
		if err == io.EOF {
			return CloseWrite(dst) == nil, nil
		}
		if err != nil {
			return true, err
		}
		buf.took(n)
	}
}

// CloseWrite ends the writing half of what has halves; of anything else it does nothing.
func CloseWrite(w any) error {
	if cw, ok := w.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}
